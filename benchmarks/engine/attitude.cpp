// The extended Kalman filter of an attitude by hand in Eigen: a quaternion (body to world) and the bias of the gyroscope;
// the gyroscope drives the prediction, accelerometer and magnetometer are measured. Error states, Joseph form. The belief
// is that at the first measurement.
//
//   g++ -O3 -march=native -shared -fPIC -DNDEBUG -I/usr/include/eigen3 attitude.cpp
#include "rotation.hpp"

enum { D = 6, M = 6, SIZE = 7 };
using Matrix = Eigen::Matrix<double, D, D>;
using Measured = Eigen::Matrix<double, M, 1>;

struct Model {
    double Q[D], R[M], gravity[3], field[3], dt, mean[SIZE], cov[D * D];
};

extern "C" void attitude_run(const Model *given, const double *y, const double *gyro, long steps, double *mean,
                             double *cov, double *innovation, double *log_likelihood)
{
    const Eigen::Map<const Eigen::Matrix<double, D, 1>> process(given->Q);
    const Measured R(Eigen::Map<const Measured>(given->R));
    const Vector3 gravity(given->gravity), field(given->field);
    const double h = given->dt;
    Quaternion q(given->mean[0], given->mean[1], given->mean[2], given->mean[3]);
    Vector3 bias(given->mean[4], given->mean[5], given->mean[6]);
    Matrix P = Eigen::Map<const Matrix>(given->cov);
    Matrix F = Matrix::Identity();
    Eigen::Matrix<double, M, D> H = Eigen::Matrix<double, M, D>::Zero();
    double total = 0;
    for (long t = 0; t < steps; ++t) {
        if (t > 0) {
            const Vector3 angle = h * (Vector3(gyro + 3 * t) - bias);
            const Quaternion turn = exponential(angle);
            F.topLeftCorner<3, 3>() = turn.toRotationMatrix().transpose();
            F.topRightCorner<3, 3>() = -h * right_jacobian(angle);
            q = (q * turn).normalized();
            const Matrix FP = F * P;
            P.noalias() = FP * F.transpose();
            P.diagonal() += process;
            P = (P + P.transpose().eval()) / 2;
        }
        const Matrix3 to_body = q.toRotationMatrix().transpose();
        const Vector3 force = to_body * gravity, magnetic = to_body * field;
        H.topLeftCorner<3, 3>() = skew(force);
        H.bottomLeftCorner<3, 3>() = skew(magnetic);
        Measured residual = Eigen::Map<const Measured>(y + t * M);
        residual.head<3>() -= force;
        residual.tail<3>() -= magnetic;
        const Eigen::Matrix<double, D, 1> correction = condition<D, M>(P, H, R, residual, total);
        q = (q * exponential(correction.head<3>())).normalized();
        bias += correction.tail<3>();
        Eigen::Map<Eigen::Matrix<double, SIZE, 1>>(mean + t * SIZE) << q.w(), q.vec(), bias;
        Eigen::Map<Matrix>(cov + t * D * D) = P;
        Eigen::Map<Measured>(innovation + t * M) = residual;
    }
    *log_likelihood = total;
}
