// Messages of ROS 2 with the fields that the generated node uses.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace builtin_interfaces::msg {
struct Time {
    std::int32_t sec = 0;
    std::uint32_t nanosec = 0;
};
}
namespace std_msgs::msg {
struct Header {
    builtin_interfaces::msg::Time stamp;
    std::string frame_id;
};
}
namespace geometry_msgs::msg {
struct Vector3 {
    double x = 0, y = 0, z = 0;
};
using Point = Vector3;
struct Quaternion {
    double x = 0, y = 0, z = 0, w = 1;
};
struct Pose {
    Point position;
    Quaternion orientation;
};
struct PoseWithCovariance {
    Pose pose;
    std::array<double, 36> covariance{};
};
struct PoseWithCovarianceStamped {
    std_msgs::msg::Header header;
    PoseWithCovariance pose;
};
struct Twist {
    Vector3 linear, angular;
};
struct TwistWithCovariance {
    Twist twist;
    std::array<double, 36> covariance{};
};
}
namespace sensor_msgs::msg {
struct Imu {
    std_msgs::msg::Header header;
    geometry_msgs::msg::Quaternion orientation;
    geometry_msgs::msg::Vector3 angular_velocity, linear_acceleration;
};
}
namespace nav_msgs::msg {
struct Odometry {
    std_msgs::msg::Header header;
    std::string child_frame_id;
    geometry_msgs::msg::PoseWithCovariance pose;
    geometry_msgs::msg::TwistWithCovariance twist;
};
}
