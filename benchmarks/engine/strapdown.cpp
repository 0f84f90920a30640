// The extended Kalman filter of strapdown navigation by hand in Eigen: position, velocity, attitude and the biases of
// gyroscope and accelerometer, 15 error states. A receiver measures position and velocity, a magnetometer the field in
// the body frame; NaN in the first channel of a sensor says that it measured nothing, and nothing is computed for it.
// The equations are those of StrapdownMotion, in Joseph form. The belief is that at the first measurement.
//
//   g++ -O3 -march=native -shared -fPIC -DNDEBUG -I/usr/include/eigen3 strapdown.cpp
#include "rotation.hpp"

enum { D = 15, CHANNELS = 9, SIZE = 16 };
using Matrix = Eigen::Matrix<double, D, D>;

struct Model {
    double gravity[3], gyro, accelerometer, gyro_walk, accelerometer_walk; // densities, not squared
    double R[CHANNELS], field[3], dt, mean[SIZE], cov[D * D];
};

struct State {
    Vector3 p, v;
    Quaternion q;
    Vector3 bg, ba;
    Matrix P;

    void add(const Eigen::Matrix<double, D, 1> &delta)
    {
        p += delta.segment<3>(0);
        v += delta.segment<3>(3);
        q = (q * exponential(delta.segment<3>(6))).normalized();
        bg += delta.segment<3>(9);
        ba += delta.segment<3>(12);
    }
};

static void predict(const Model &given, const Matrix &Q, const double *u, State &state, Matrix &F)
{
    const double h = given.dt;
    const Vector3 rate = Vector3(u) - state.bg, force = Vector3(u + 3) - state.ba;
    const Quaternion half = exponential(h / 2 * rate);
    const Matrix3 before = state.q.toRotationMatrix(), middle = (state.q * half).toRotationMatrix();
    const Vector3 acceleration = middle * force + Vector3(given.gravity);
    const Matrix3 by_angle = -before * skew(half * force);
    const Matrix3 by_gyro = h / 2 * middle * skew(force) * right_jacobian(h / 2 * rate);
    F.block<3, 3>(0, 3) = h * Matrix3::Identity();
    F.block<3, 3>(0, 6) = h * h / 2 * by_angle;
    F.block<3, 3>(0, 9) = h * h / 2 * by_gyro;
    F.block<3, 3>(0, 12) = -h * h / 2 * middle;
    F.block<3, 3>(3, 6) = h * by_angle;
    F.block<3, 3>(3, 9) = h * by_gyro;
    F.block<3, 3>(3, 12) = -h * middle;
    F.block<3, 3>(6, 6) = (half * half).conjugate().toRotationMatrix();
    F.block<3, 3>(6, 9) = -h * right_jacobian(h * rate);
    state.p += h * state.v + h * h / 2 * acceleration;
    state.v += h * acceleration;
    state.q = (state.q * exponential(h * rate)).normalized();
    const Matrix FP = F * state.P;
    state.P.noalias() = FP * F.transpose();
    state.P += Q;
    state.P = (state.P + state.P.transpose().eval()) / 2;
}

// Condition on the receiver, the magnetometer, or both together.
template <bool RECEIVER, bool MAGNETOMETER>
static void update(const Model &given, const double *residual, const Vector3 &field, State &state, double &total)
{
    constexpr int M = 6 * RECEIVER + 3 * MAGNETOMETER, FIRST = RECEIVER ? 0 : 6;
    Eigen::Matrix<double, M, D> H = Eigen::Matrix<double, M, D>::Zero();
    if constexpr (RECEIVER) H.template topLeftCorner<6, 6>().setIdentity();
    if constexpr (MAGNETOMETER) H.template block<3, 3>(M - 3, 6) = skew(field);
    const Eigen::Matrix<double, M, 1> r = Eigen::Map<const Eigen::Matrix<double, M, 1>>(residual + FIRST);
    const Eigen::Matrix<double, M, 1> R = Eigen::Map<const Eigen::Matrix<double, M, 1>>(given.R + FIRST);
    state.add(condition<D, M>(state.P, H, R, r, total));
}

extern "C" void strapdown_run(const Model *model, const double *y, const double *u, long steps, double *mean,
                              double *cov, double *innovation, double *log_likelihood)
{
    const Model &given = *model;
    const double h = given.dt, white = given.accelerometer * given.accelerometer;
    const double variances[5] = {white * h * h * h / 3, white * h, given.gyro * given.gyro * h,
                                 given.gyro_walk * given.gyro_walk * h,
                                 given.accelerometer_walk * given.accelerometer_walk * h};
    Matrix Q = Matrix::Zero(), F = Matrix::Identity();
    for (int i = 0; i < D; ++i) Q(i, i) = variances[i / 3];
    for (int i = 0; i < 3; ++i) Q(i, 3 + i) = Q(3 + i, i) = white * h * h / 2;
    const double *m = given.mean;
    State state{Vector3(m), Vector3(m + 3), Quaternion(m[6], m[7], m[8], m[9]), Vector3(m + 10), Vector3(m + 13),
                Eigen::Map<const Matrix>(given.cov)};
    double total = 0;
    for (long t = 0; t < steps; ++t) {
        if (t > 0) predict(given, Q, u + 6 * t, state, F);
        const double *now = y + t * CHANNELS;
        const bool receiver = !std::isnan(now[0]), magnetometer = !std::isnan(now[6]);
        const Vector3 field = state.q.conjugate() * Vector3(given.field);
        Eigen::Map<Eigen::Matrix<double, CHANNELS, 1>> residual(innovation + t * CHANNELS);
        residual.setZero();
        if (receiver) {
            residual.segment<3>(0) = Vector3(now) - state.p;
            residual.segment<3>(3) = Vector3(now + 3) - state.v;
        }
        if (magnetometer) residual.segment<3>(6) = Vector3(now + 6) - field;
        if (receiver && magnetometer) update<true, true>(given, residual.data(), field, state, total);
        else if (receiver) update<true, false>(given, residual.data(), field, state, total);
        else if (magnetometer) update<false, true>(given, residual.data(), field, state, total);
        Eigen::Map<Eigen::Matrix<double, SIZE, 1>>(mean + t * SIZE) << state.p, state.v, state.q.w(), state.q.vec(),
            state.bg, state.ba;
        Eigen::Map<Matrix>(cov + t * D * D) = state.P;
    }
    *log_likelihood = total;
}
