// The part of rclcpp that the generated node uses. Messages go through `Bus`, where a test puts and reads them.
#pragma once
#include <any>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace rclcpp {

struct Bus {
    static inline std::map<std::string, std::function<void(const std::any &)>> subscribers;
    static inline std::map<std::string, std::function<void(const std::any &)>> listeners;
    static inline std::map<std::string, std::any> parameters;
};

struct QoS {
    explicit QoS(std::size_t) {}
};
struct SensorDataQoS : QoS {
    SensorDataQoS() : QoS(5) {}
};
struct Logger {};
struct Clock {};

template <typename Message>
struct Publisher {
    using SharedPtr = std::shared_ptr<Publisher>;
    std::string topic;
    void publish(const Message &message) { Bus::listeners.at(topic)(message); }
};
template <typename Message>
struct Subscription {
    using SharedPtr = std::shared_ptr<Subscription>;
};

class Node {
public:
    explicit Node(const std::string &) {}

    template <typename Value>
    Value declare_parameter(const std::string &name, const Value &value)
    {
        const auto found = Bus::parameters.find(name);
        return found == Bus::parameters.end() ? value : std::any_cast<Value>(found->second);
    }

    template <typename Message>
    typename Publisher<Message>::SharedPtr create_publisher(const std::string &topic, const QoS &)
    {
        return std::make_shared<Publisher<Message>>(Publisher<Message>{topic});
    }

    template <typename Message, typename Callback>
    typename Subscription<Message>::SharedPtr create_subscription(
        const std::string &topic, const QoS &, Callback callback)
    {
        Bus::subscribers[topic] = [callback](const std::any &message) {
            callback(std::any_cast<const Message &>(message));
        };
        return std::make_shared<Subscription<Message>>();
    }

    Logger get_logger() const { return {}; }
    std::shared_ptr<Clock> get_clock() const { return std::make_shared<Clock>(); }
};

inline void init(int, char **) {}
inline void spin(const std::shared_ptr<Node> &) {}
inline void shutdown() {}

}  // namespace rclcpp

#define RCLCPP_ERROR(logger, ...) ((void)(logger), std::fprintf(stderr, __VA_ARGS__))
#define RCLCPP_WARN_THROTTLE(logger, clock, period, ...) \
    ((void)(logger), (void)(clock), (void)(period), std::fprintf(stderr, __VA_ARGS__))
