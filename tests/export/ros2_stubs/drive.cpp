// Feeds the node with the messages on standard input and prints the poses that it publishes.
//   imu NANOSECONDS 6 numbers | odometry NANOSECONDS 13 numbers (position, w x y z, velocity, rates)
#include NODE_HEADER

#include <cstdio>
#include <cstring>

int main()
{
    using rclcpp::Bus;
    Bus::listeners["pose"] = [](const std::any &any) {
        const auto &m = std::any_cast<const geometry_msgs::msg::PoseWithCovarianceStamped &>(any);
        const auto &p = m.pose.pose.position;
        const auto &q = m.pose.pose.orientation;
        std::printf("%d.%09u %.9g %.9g %.9g %.9g %.9g %.9g %.9g", m.header.stamp.sec, m.header.stamp.nanosec, p.x, p.y,
            p.z, q.w, q.x, q.y, q.z);
        for (double item : m.pose.covariance) {
            std::printf(" %.9g", item);
        }
        std::puts("");
    };
    NODE node;
    char kind[16];
    long long stamp;
    while (std::scanf("%15s %lld", kind, &stamp) == 2) {
        double x[13];
        const bool imu = !std::strcmp(kind, "imu");
        for (int i = 0; i < (imu ? 6 : 13); ++i) {
            if (std::scanf("%lf", &x[i]) != 1) {
                return 2;
            }
        }
        builtin_interfaces::msg::Time time;
        time.sec = static_cast<std::int32_t>(stamp / 1000000000);
        time.nanosec = static_cast<std::uint32_t>(stamp % 1000000000);
        if (imu) {
            sensor_msgs::msg::Imu m;
            m.header.stamp = time;
            m.angular_velocity = {x[0], x[1], x[2]};
            m.linear_acceleration = {x[3], x[4], x[5]};
            Bus::subscribers.at("imu")(m);
        } else {
            nav_msgs::msg::Odometry m;
            m.header.stamp = time;
            m.pose.pose.position = {x[0], x[1], x[2]};
            m.pose.pose.orientation = {x[4], x[5], x[6], x[3]};
            m.twist.twist.linear = {x[7], x[8], x[9]};
            m.twist.twist.angular = {x[10], x[11], x[12]};
            Bus::subscribers.at("odometry")(m);
        }
    }
    return 0;
}
