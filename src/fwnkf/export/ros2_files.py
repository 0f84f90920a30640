"""The files of a ROS 2 package, with ``@KEY@`` where :mod:`.ros2` puts what depends on the filter."""

from __future__ import annotations

from .ros2_adapter import ADAPTER

PACKAGE = """\
<?xml version="1.0"?>
<package format="3">
  <name>@NAME@_node</name>
  <version>0.1.0</version>
  <description>State estimation from IMU and odometry, exported by fwnkf</description>
  <maintainer email="you@example.com">you</maintainer>
  <license>MIT</license>

  <buildtool_depend>ament_cmake</buildtool_depend>
  <depend>rclcpp</depend>
  <depend>geometry_msgs</depend>
  <depend>nav_msgs</depend>
  <depend>sensor_msgs</depend>
  <exec_depend>launch_ros</exec_depend>

  <export>
    <build_type>ament_cmake</build_type>
  </export>
</package>
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.13)
project(@NAME@_node C CXX)

set(CMAKE_C_STANDARD 99)
set(CMAKE_CXX_STANDARD 17)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_package(ament_cmake REQUIRED)
find_package(rclcpp REQUIRED)
find_package(geometry_msgs REQUIRED)
find_package(nav_msgs REQUIRED)
find_package(sensor_msgs REQUIRED)

add_executable(@NAME@_node src/main.cpp filter/@NAME@.c)
target_include_directories(@NAME@_node PRIVATE include filter)
target_compile_options(@NAME@_node PRIVATE -O3 -Wall -Wextra)
target_link_libraries(@NAME@_node m)
ament_target_dependencies(@NAME@_node rclcpp geometry_msgs nav_msgs sensor_msgs)

install(TARGETS @NAME@_node DESTINATION lib/${PROJECT_NAME})
install(DIRECTORY launch DESTINATION share/${PROJECT_NAME})
ament_package()
"""

NODE = """\
// The node: topics and parameters around the adapter.
#ifndef @GUARD@_NODE_HPP
#define @GUARD@_NODE_HPP

#include <cstdint>
#include <string>
#include <vector>

#include <geometry_msgs/msg/pose_with_covariance_stamped.hpp>
#include <nav_msgs/msg/odometry.hpp>
#include <rclcpp/rclcpp.hpp>
#include <sensor_msgs/msg/imu.hpp>

#include "@NAME@_node/adapter.hpp"

namespace @NAME@_node {

class Node : public rclcpp::Node {
public:
    Node() : rclcpp::Node("@NAME@"), adapter_(declare_parameter<double>("restart_after", 1.0))
    {
        frame_ = declare_parameter<std::string>("frame_id", "odom");
        const auto mean = declare_parameter<std::vector<double>>("initial_mean", std::vector<double>());
        const auto variance = declare_parameter<std::vector<double>>("initial_variance", std::vector<double>());
        if (!(mean.empty() && variance.empty()) && !adapter_.set_prior(mean, variance)) {
            RCLCPP_ERROR(get_logger(), "initial_mean needs @STATES@ numbers and initial_variance @TANGENT@: not used");
        }
        pose_ = create_publisher<geometry_msgs::msg::PoseWithCovarianceStamped>("pose", rclcpp::QoS(10));
        imu_ = create_subscription<sensor_msgs::msg::Imu>(
            "imu", rclcpp::SensorDataQoS(), [this](const sensor_msgs::msg::Imu &message) { on_imu(message); });
        odometry_ = create_subscription<nav_msgs::msg::Odometry>(
            "odometry", rclcpp::SensorDataQoS(),
            [this](const nav_msgs::msg::Odometry &message) { on_odometry(message); });
    }

private:
    template <typename Header>
    static std::int64_t nanoseconds(const Header &header)
    {
        return 1000000000LL * header.stamp.sec + header.stamp.nanosec;
    }

    void on_imu(const sensor_msgs::msg::Imu &message)
    {
        const auto &w = message.angular_velocity;
        const auto &a = message.linear_acceleration;
        report(adapter_.imu({nanoseconds(message.header), {w.x, w.y, w.z}, {a.x, a.y, a.z}}), message.header.stamp);
    }

    void on_odometry(const nav_msgs::msg::Odometry &message)
    {
        const auto &p = message.pose.pose.position;
        const auto &q = message.pose.pose.orientation;
        const auto &v = message.twist.twist.linear;
        const auto &w = message.twist.twist.angular;
        Odometry odometry;
        odometry.stamp = nanoseconds(message.header);
        const double numbers[13] = {p.x, p.y, p.z, q.w, q.x, q.y, q.z, v.x, v.y, v.z, w.x, w.y, w.z};
        for (int i = 0; i < 3; ++i) {
            odometry.position[i] = numbers[i];
            odometry.body_velocity[i] = numbers[7 + i];
            odometry.angular_velocity[i] = numbers[10 + i];
        }
        for (int i = 0; i < 4; ++i) {
            odometry.orientation[i] = numbers[3 + i];
        }
        report(adapter_.odometry(odometry), message.header.stamp);
    }

    template <typename Stamp>
    void report(bool fresh, const Stamp &stamp)
    {
        if (adapter_.dropped() > dropped_) {
            dropped_ = adapter_.dropped();
            RCLCPP_WARN_THROTTLE(
                get_logger(), *get_clock(), 5000, "%lu messages were older than the one before and were not used",
                static_cast<unsigned long>(dropped_));
        }
        if (adapter_.status() & @GUARD@_REJECTED) {
            RCLCPP_WARN_THROTTLE(
                get_logger(), *get_clock(), 5000, "status %d: the step was rejected and the filter starts anew",
                adapter_.status());
            adapter_.restart();
        }
        if (!fresh) {
            return;
        }
        const Pose pose = adapter_.pose();
        geometry_msgs::msg::PoseWithCovarianceStamped message;
        message.header.stamp = stamp;
        message.header.frame_id = frame_;
        message.pose.pose.position.x = pose.position[0];
        message.pose.pose.position.y = pose.position[1];
        message.pose.pose.position.z = pose.position[2];
        message.pose.pose.orientation.w = pose.orientation[0];
        message.pose.pose.orientation.x = pose.orientation[1];
        message.pose.pose.orientation.y = pose.orientation[2];
        message.pose.pose.orientation.z = pose.orientation[3];
        for (int i = 0; i < 36; ++i) {
            message.pose.covariance[i] = pose.covariance[i];
        }
        pose_->publish(message);
    }

    Adapter adapter_;
    std::string frame_;
    std::uint64_t dropped_ = 0;
    rclcpp::Publisher<geometry_msgs::msg::PoseWithCovarianceStamped>::SharedPtr pose_;
    rclcpp::Subscription<sensor_msgs::msg::Imu>::SharedPtr imu_;
    rclcpp::Subscription<nav_msgs::msg::Odometry>::SharedPtr odometry_;
};

}  // namespace @NAME@_node

#endif
"""

MAIN = """\
#include <memory>

#include "@NAME@_node/node.hpp"

int main(int count, char **arguments)
{
    rclcpp::init(count, arguments);
    rclcpp::spin(std::make_shared<@NAME@_node::Node>());
    rclcpp::shutdown();
    return 0;
}
"""

LAUNCH = """\
from launch import LaunchDescription
from launch_ros.actions import Node


def generate_launch_description():
    return LaunchDescription(
        [
            Node(
                package="@NAME@_node",
                executable="@NAME@_node",
                parameters=[{"frame_id": "odom", "restart_after": 1.0}],
                remappings=[("imu", "/imu/data"), ("odometry", "/odometry")],
            )
        ]
    )
"""

README = """\
# @NAME@_node

A filter exported by fwnkf (`filter/`) in a ROS 2 node. Put this folder into the `src` of a workspace:

```sh
colcon build --packages-select @NAME@_node
ros2 launch @NAME@_node @NAME@.launch.py
```

| topic | type | |
|---|---|---|
| `imu` | sensor_msgs/Imu | in |
| `odometry` | nav_msgs/Odometry | in |
| `pose` | geometry_msgs/PoseWithCovarianceStamped | out, after every step |

Channels of the filter: @SIGNALS@. Control inputs: @CONTROL_SIGNALS@.
What an odometry message measures is used in the next step and missing in the others.

| parameter | |
|---|---|
| `frame_id` | frame of the pose (`odom`) |
| `restart_after` | seconds without a message after which the filter starts anew (1.0) |
| `initial_mean`, `initial_variance` | the belief to start from: @STATES@ and @TANGENT@ numbers |

`include/@NAME@_node/adapter.hpp` has the logic and needs no ROS. Variances of what the filter does not estimate are
@UNKNOWN@.
"""

FILES = {
    "package.xml": PACKAGE,
    "CMakeLists.txt": CMAKE,
    "README.md": README,
    "include/NAME_node/adapter.hpp": ADAPTER,
    "include/NAME_node/node.hpp": NODE,
    "src/main.cpp": MAIN,
    "launch/NAME.launch.py": LAUNCH,
}
