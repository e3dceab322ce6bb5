import Foundation
import Polylimit

// Three requests of one client, of which the third has to wait.
let limiter = try Limiter(settings: Settings(policies: [Policy(name: "api", quotas: "2/minute fixed_window")]))
for number in 1...3 {
    let decision = try limiter.check(request: Request(key: Data("user:42".utf8)))
    if decision.allowed {
        print("request \(number) proceeds, \(decision.remaining) left")
    } else if let retryAfter = decision.retryAfter {
        print("request \(number) may come again in \(retryAfter)")
    }
}
try limiter.shutDown()
