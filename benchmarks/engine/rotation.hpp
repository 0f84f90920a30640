// Rotations of attitude.cpp and strapdown.cpp. A perturbation is a rotation vector in the body frame: q * exp(delta).
#pragma once
#include <cmath>

#include <Eigen/Dense>

using Vector3 = Eigen::Vector3d;
using Matrix3 = Eigen::Matrix3d;
using Quaternion = Eigen::Quaterniond;

inline Matrix3 skew(const Vector3 &v)
{
    Matrix3 m;
    m << 0, -v.z(), v.y(), v.z(), 0, -v.x(), -v.y(), v.x(), 0;
    return m;
}

inline Quaternion exponential(const Vector3 &w)
{
    const double squared = w.squaredNorm(), angle = std::sqrt(squared);
    const double scale = squared > 1e-12 ? std::sin(angle / 2) / angle : 0.5 - squared / 48;
    return Quaternion(std::cos(angle / 2), scale * w.x(), scale * w.y(), scale * w.z());
}

// J with exp(w + delta) = exp(w) * exp(J delta) to first order.
inline Matrix3 right_jacobian(const Vector3 &w)
{
    const double squared = w.squaredNorm(), angle = std::sqrt(squared);
    const bool tiny = squared < 1e-8;
    const double first = tiny ? 0.5 - squared / 24 : (1 - std::cos(angle)) / squared;
    const double second = tiny ? 1. / 6 - squared / 120 : (angle - std::sin(angle)) / (squared * angle);
    const Matrix3 cross = skew(w);
    return Matrix3::Identity() - first * cross + second * cross * cross;
}

// The Joseph form with the gain of P, H and the variances R: the correction; P becomes the posterior covariance, and the
// log-likelihood of the residual is added to total.
template <int D, int M>
Eigen::Matrix<double, D, 1> condition(Eigen::Matrix<double, D, D> &P, const Eigen::Matrix<double, M, D> &H,
                                      const Eigen::Matrix<double, M, 1> &R,
                                      const Eigen::Matrix<double, M, 1> &residual, double &total)
{
    const Eigen::Matrix<double, D, M> PHt = P * H.transpose();
    Eigen::Matrix<double, M, M> S = H * PHt;
    S.diagonal() += R;
    const Eigen::LLT<Eigen::Matrix<double, M, M>> factor(S);
    const Eigen::Matrix<double, D, M> K = factor.solve(PHt.transpose()).transpose();
    const Eigen::Matrix<double, M, 1> whitened = factor.matrixL().solve(residual);
    total -= 0.5 * (whitened.squaredNorm() + M * std::log(2 * M_PI));
    total -= factor.matrixLLT().diagonal().array().log().sum();
    const Eigen::Matrix<double, D, D> IKH = Eigen::Matrix<double, D, D>::Identity() - K * H;
    const Eigen::Matrix<double, D, D> IKHP = IKH * P;
    P.noalias() = IKHP * IKH.transpose();
    P += K * R.asDiagonal() * K.transpose();
    P = (P + P.transpose().eval()) / 2;
    return K * residual;
}
