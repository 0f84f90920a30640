"""The C++ between messages of ROS and the C of a filter, with ``@KEY@`` as in :mod:`.ros2_files`."""

from __future__ import annotations

ADAPTER = """\
// From IMU and odometry to a pose: the logic of the node, without ROS.
#ifndef @GUARD@_ADAPTER_HPP
#define @GUARD@_ADAPTER_HPP

#include <cmath>
#include <cstdint>
#include <vector>

#include "@NAME@.h"

namespace @NAME@_node {

struct Imu {
    std::int64_t stamp;  // nanoseconds
    double angular_velocity[3], linear_acceleration[3];
};

struct Odometry {
    std::int64_t stamp;
    double position[3], orientation[4];  // w, x, y, z
    double body_velocity[3], angular_velocity[3];
    double roll_pitch_yaw[3] = {}, velocity[3] = {};  // from the others

    void complete();
};

struct Pose {
    double position[3], orientation[4];  // w, x, y, z
    double covariance[36];  // of position and rotations about fixed axes, as in geometry_msgs/PoseWithCovariance
};

inline void rotation_matrix(const double *q, double (&R)[3][3])
{
    const double w = q[0], x = q[1], y = q[2], z = q[3];
    const double rows[3][3] = {
        {1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
        {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
        {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) {
            R[i][j] = rows[i][j];
        }
    }
}

inline void Odometry::complete()
{
    double R[3][3];
    rotation_matrix(orientation, R);
    for (int i = 0; i < 3; ++i) {
        velocity[i] = R[i][0] * body_velocity[0] + R[i][1] * body_velocity[1] + R[i][2] * body_velocity[2];
    }
    roll_pitch_yaw[0] = std::atan2(R[2][1], R[2][2]);
    roll_pitch_yaw[1] = std::asin(std::fmax(-1.0, std::fmin(1.0, -R[2][0])));
    roll_pitch_yaw[2] = std::atan2(R[1][0], R[0][0]);
}

class Adapter {
public:
    // A gap of more than `restart_after` seconds starts the filter anew.
    explicit Adapter(double restart_after = 1.0) : restart_after_(restart_after) { restart(); }

    // Start from a belief of this mean and these variances instead of the default one; false if their sizes are wrong.
    bool set_prior(const std::vector<double> &mean, const std::vector<double> &variance)
    {
        if (mean.size() != STATES || variance.size() != TANGENT) {
            return false;
        }
        mean_.assign(mean.begin(), mean.end());
        cov_.assign(TANGENT * TANGENT, 0);
        for (int i = 0; i < TANGENT; ++i) {
            cov_[i * TANGENT + i] = static_cast<@NAME@_real>(variance[i]);
        }
        restart();
        return true;
    }

    void restart()
    {
        if (mean_.empty()) {
            @NAME@_init(&state_);
        } else {
            @NAME@_init_prior(&state_, mean_.data(), cov_.data());
        }
        filled_ = 0;
        started_ = false;
        clear();
    }

    // Each returns true if there is a new pose.
    bool imu(const Imu &imu)
    {
        if (IMU_STEPS && !in_order(imu.stamp)) {
            return false;
        }
@READ_IMU@
        return IMU_STEPS && advance(imu.stamp);
    }

    bool odometry(Odometry odometry)
    {
        odometry.complete();
        if (!IMU_STEPS && !in_order(odometry.stamp)) {
            return false;
        }
@READ_ODOMETRY@
        return !IMU_STEPS && advance(odometry.stamp);
    }

    Pose pose() const;
    int status() const { return status_; }
    std::uint64_t dropped() const { return dropped_; }  // messages older than the last one
    const @NAME@_output &output() const { return out_; }

private:
    enum { CHANNELS = @CHANNELS@, CONTROLS = @CONTROLS@, BLOCK = @BLOCK@, STATES = @STATES@, TANGENT = @TANGENT@ };
    enum { POSITION = @POSITION@, POSITION_TANGENT = @POSITION_TANGENT@ };
    enum { ORIENTATION = @ORIENTATION@, ORIENTATION_TANGENT = @ORIENTATION_TANGENT@ };
    static constexpr bool IMU_STEPS = @IMU_STEPS@;  // else a step is taken for every odometry message
    static constexpr double NOMINAL = @NOMINAL@, UNKNOWN = @UNKNOWN@;

    bool in_order(std::int64_t stamp)
    {
        const bool later = !started_ || stamp > last_;
        dropped_ += !later;
        return later;
    }

    void measure(int channel, double value)
    {
        value_[channel] = value;
        present_[channel] = 1;
    }

    void clear()
    {
        for (int i = 0; i < CHANNELS; ++i) {
            present_[i] = 0;
        }
    }

    bool advance(std::int64_t stamp)
    {
        double seconds = started_ ? 1e-9 * static_cast<double>(stamp - last_) : NOMINAL;
        if (seconds > restart_after_) {
            unsigned char kept[CHANNELS];
            for (int i = 0; i < CHANNELS; ++i) {
                kept[i] = present_[i];
            }
            restart();
            for (int i = 0; i < CHANNELS; ++i) {
                present_[i] = kept[i];
            }
            seconds = NOMINAL;
        }
        last_ = stamp;
        started_ = true;
        for (int i = 0; i < CHANNELS; ++i) {
            measured[filled_ * CHANNELS + i] = static_cast<@NAME@_real>(value_[i]);
            mask[filled_ * CHANNELS + i] = present_[i];
        }
        for (int i = 0; i < CONTROLS; ++i) {
            control[filled_ * CONTROLS + i] = static_cast<@NAME@_real>(control_[i]);
        }
        dt[filled_] = static_cast<@NAME@_real>(seconds);
        clear();
        if (++filled_ < BLOCK) {
            return false;
        }
        filled_ = 0;
        status_ = @NAME@_step(@ARGUMENTS@);
        return !(status_ & @GUARD@_REJECTED);
    }

    double restart_after_;
    std::vector<@NAME@_real> mean_, cov_;
    @NAME@_state state_ = {};
    @NAME@_output out_ = {};
    double value_[CHANNELS] = {}, control_[CONTROLS + 1] = {};
    unsigned char present_[CHANNELS] = {}, mask[BLOCK * CHANNELS] = {};
    @NAME@_real measured[BLOCK * CHANNELS] = {}, control[BLOCK * CONTROLS + 1] = {}, dt[BLOCK] = {};
    int filled_ = 0, status_ = 0;
    bool started_ = false;
    std::int64_t last_ = 0;
    std::uint64_t dropped_ = 0;
};

inline Pose Adapter::pose() const
{
    Pose result = {{0, 0, 0}, {1, 0, 0, 0}, {0}};
    int place[6];
    for (int i = 0; i < 3; ++i) {
        place[i] = POSITION < 0 ? -1 : POSITION_TANGENT + i;
        place[3 + i] = ORIENTATION < 0 ? -1 : ORIENTATION_TANGENT + i;
    }
    for (int i = 0; i < 3 && POSITION >= 0; ++i) {
        result.position[i] = out_.mean[POSITION + i];
    }
    for (int i = 0; i < 4 && ORIENTATION >= 0; ++i) {
        result.orientation[i] = out_.mean[ORIENTATION + i];
    }
    // the filter states rotations about the axes of the body: A turns them to the fixed axes
    double A[6][6] = {{0}}, R[3][3], P[6][6], AP[6][6];
    rotation_matrix(result.orientation, R);
    for (int i = 0; i < 3; ++i) {
        A[i][i] = 1;
        for (int j = 0; j < 3; ++j) {
            A[3 + i][3 + j] = R[i][j];
        }
    }
    for (int i = 0; i < 6; ++i) {
        for (int j = 0; j < 6; ++j) {
            const bool known = place[i] >= 0 && place[j] >= 0;
            P[i][j] = known ? out_.cov[place[i] * TANGENT + place[j]] : i == j ? UNKNOWN : 0.0;
        }
    }
    for (int i = 0; i < 6; ++i) {
        for (int j = 0; j < 6; ++j) {
            AP[i][j] = 0;
            for (int k = 0; k < 6; ++k) {
                AP[i][j] += A[i][k] * P[k][j];
            }
        }
    }
    for (int i = 0; i < 6; ++i) {
        for (int j = 0; j < 6; ++j) {
            for (int k = 0; k < 6; ++k) {
                result.covariance[6 * i + j] += AP[i][k] * A[j][k];
            }
        }
    }
    return result;
}

}  // namespace @NAME@_node

#endif
"""
