// The inertial EKF of the benchmark by hand in Eigen: 15 error states (position, velocity, orientation, two biases) and 12
// noise states (six oscillators), position observed, Joseph form. The equations are those of systems/strapdown.py.
#include <cmath>

#include <Eigen/Dense>

using Real = REAL;
enum { D = 15, S = 12, N = D + S, M = 3 };
using Matrix = Eigen::Matrix<Real, N, N>;
using Matrix3 = Eigen::Matrix<Real, 3, 3>;
using Vector3 = Eigen::Matrix<Real, 3, 1>;
using Quaternion = Eigen::Quaternion<Real>;

struct State {
    Vector3 p, v;
    Quaternion q;
    Vector3 bg, ba;
    Eigen::Matrix<Real, S, 1> nu;
    Matrix P;
};

struct Parameters {
    Real radius[S / 2], frequency[S / 2];
    Real C[M * S], R[M];
    Real white, rate, walk_g, walk_a, gravity, dt0;
};

static Matrix3 skew(const Vector3 &v)
{
    Matrix3 m;
    m << 0, -v.z(), v.y(), v.z(), 0, -v.x(), -v.y(), v.x(), 0;
    return m;
}

static Quaternion exponential(const Vector3 &w)
{
    const Real angle = w.norm();
    const Real half = angle / 2;
    const Real scale = angle > Real(1e-6) ? std::sin(half) / angle : Real(0.5);
    return Quaternion(std::cos(half), scale * w.x(), scale * w.y(), scale * w.z());
}

static Matrix3 right_jacobian(const Vector3 &w)
{
    const Real angle = w.norm();
    const Matrix3 cross = skew(w);
    if (angle < Real(1e-6)) {
        return Matrix3::Identity() - cross / 2;
    }
    const Real square = angle * angle;
    return Matrix3::Identity() - (1 - std::cos(angle)) / square * cross
        + (angle - std::sin(angle)) / (square * angle) * cross * cross;
}

static State state;
static Parameters parameters;

extern "C" void ekf_hand_init(const Parameters *given)
{
    parameters = *given;
    state.p.setZero();
    state.v.setZero();
    state.q.setIdentity();
    state.bg.setZero();
    state.ba.setZero();
    state.nu.setZero();
    state.P.setIdentity();
}

extern "C" void ekf_hand_state(Real *mean)
{
    Eigen::Map<Eigen::Matrix<Real, 16, 1>> out(mean);
    out << state.p, state.v, state.q.w(), state.q.vec(), state.bg, state.ba;
}

extern "C" void ekf_hand_steps(const Real *y, const Real *u, Real h, int steps)
{
    for (int t = 0; t < steps; ++t) {
        const Vector3 rate = Vector3(u[0], u[1], u[2]) - state.bg, force = Vector3(u[3], u[4], u[5]) - state.ba;
        const Quaternion half = exponential(rate * h / 2);
        const Matrix3 orientation = state.q.toRotationMatrix(), middle = (state.q * half).toRotationMatrix();
        const Vector3 acceleration = middle * force + Vector3(0, 0, parameters.gravity);
        const Matrix3 by_angle = -orientation * skew(half * force);
        const Matrix3 by_gyro = h / 2 * middle * skew(force) * right_jacobian(rate * h / 2);
        Matrix F = Matrix::Identity();
        F.block<3, 3>(0, 3) = h * Matrix3::Identity();
        F.block<3, 3>(0, 6) = h * h / 2 * by_angle;
        F.block<3, 3>(0, 9) = h * h / 2 * by_gyro;
        F.block<3, 3>(0, 12) = -h * h / 2 * middle;
        F.block<3, 3>(3, 6) = h * by_angle;
        F.block<3, 3>(3, 9) = h * by_gyro;
        F.block<3, 3>(3, 12) = -h * middle;
        F.block<3, 3>(6, 6) = (half * half).conjugate().toRotationMatrix();
        F.block<3, 3>(6, 9) = -h * right_jacobian(rate * h);
        Matrix Q = Matrix::Zero();
        for (int i = 0; i < 3; ++i) {
            Q(i, i) = parameters.white * h * h * h / 3;
            Q(i, 3 + i) = Q(3 + i, i) = parameters.white * h * h / 2;
            Q(3 + i, 3 + i) = parameters.white * h;
            Q(6 + i, 6 + i) = parameters.rate * h;
            Q(9 + i, 9 + i) = parameters.walk_g * h;
            Q(12 + i, 12 + i) = parameters.walk_a * h;
        }
        const Real ratio = h / parameters.dt0;
        for (int i = 0; i < S / 2; ++i) {
            const int k = D + 2 * i;
            const Real radius = std::pow(parameters.radius[i], ratio), angle = parameters.frequency[i] * ratio;
            F(k, k) = F(k + 1, k + 1) = radius * std::cos(angle);
            F(k, k + 1) = -radius * std::sin(angle);
            F(k + 1, k) = radius * std::sin(angle);
            Q(k, k) = Q(k + 1, k + 1) = 1 - radius * radius;
        }
        state.p += h * state.v + h * h / 2 * acceleration;
        state.v += h * acceleration;
        state.q = (state.q * exponential(h * rate)).normalized();
        state.nu = (F.bottomRightCorner<S, S>() * state.nu).eval();
        const Matrix FP = F * state.P;
        Matrix P = FP * F.transpose() + Q;
        P = (P + P.transpose().eval()) / 2;
        Eigen::Matrix<Real, M, N> H = Eigen::Matrix<Real, M, N>::Zero();
        H.leftCols<3>().setIdentity();
        H.rightCols<S>() = Eigen::Map<const Eigen::Matrix<Real, M, S, Eigen::RowMajor>>(parameters.C);
        const Vector3 R(parameters.R[0], parameters.R[1], parameters.R[2]);
        const Eigen::Matrix<Real, N, M> PHt = P * H.transpose();
        Matrix3 innovation_cov = H * PHt;
        innovation_cov.diagonal() += R;
        const Eigen::Matrix<Real, N, M> K = innovation_cov.llt().solve(PHt.transpose()).transpose();
        const Vector3 innovation = Vector3(y[0], y[1], y[2]) - state.p - H.rightCols<S>() * state.nu;
        const Eigen::Matrix<Real, N, 1> correction = K * innovation;
        const Matrix IKH = Matrix::Identity() - K * H;
        const Matrix IKHP = IKH * P;
        state.P = IKHP * IKH.transpose() + K * R.asDiagonal() * K.transpose();
        state.P = (state.P + state.P.transpose().eval()) / 2;
        state.p += correction.segment<3>(0);
        state.v += correction.segment<3>(3);
        state.q = (state.q * exponential(correction.segment<3>(6))).normalized();
        state.bg += correction.segment<3>(9);
        state.ba += correction.segment<3>(12);
        state.nu += correction.tail<S>();
    }
}
