"""A loaded filter alone, on raw samples of the IMU, gives the figures of its card."""

import torch

import fwnkf


def rmse(error):
    return float(error.square().sum(-1).mean().sqrt())


def test_euroc(paper_windows, models):
    imu, site, dt, prior, truth, claimed = paper_windows
    with torch.no_grad():
        mean = fwnkf.load(models / "euroc").run(imu, u=site, dt=dt, prior=prior).mean[..., :10]
    sign = (mean[..., 6:] * truth[..., 6:]).sum(-1, keepdim=True).sign()  # q and -q are the same rotation
    error = torch.cat((mean[..., :6], mean[..., 6:] * sign), -1) - truth
    assert abs(float(error.square().mean()) / claimed["mse"] - 1) < 1e-6
    assert abs(rmse(error[..., :3]) / claimed["rmse_p"] - 1) < 1e-6


def test_euroc_strict(strict_windows, models):
    imu, _, dt, prior, truth, claimed = strict_windows
    with torch.no_grad():
        mean = fwnkf.load(models / "euroc-strict").run(imu, dt=dt, prior=prior).mean
    assert abs(rmse(mean[..., :3] - truth[..., :3]) / claimed["rmse_p_1s"] - 1) < 1e-6
    assert abs(rmse(mean[..., 3:6] - truth[..., 3:6]) / claimed["rmse_v_1s"] - 1) < 1e-6
