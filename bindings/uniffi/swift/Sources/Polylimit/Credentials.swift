import Foundation

/// A password (1 to 16384 bytes), and the user that it belongs to; `nil` is the default user. Its text form shows neither.
public struct Credentials: Sendable, CustomStringConvertible {
    let password: String
    let username: String?

    public init(password: String, username: String? = nil) {
        self.password = password
        self.username = username
    }

    public var description: String { "Credentials(***)" }
}

extension Limiter {
    /// A limiter with a function that gives user and password for each new connection to Redis, in place of those in the URL and the
    /// options: for passwords that expire, such as the tokens of a cloud. It is called on a thread of its own, one call at a time, and
    /// again when the server refuses what it gave; after a refusal or an error not for 0.25 to 10 seconds, growing with each time in a
    /// row. It may block: decisions have their deadline meanwhile. The description of an error is the cause in `ready`, events and the
    /// doctor, and must hold no secret. `Admin.setCredentials` replaces the function; `shutDown` does not wait for it.
    public static func withCredentials(
        settings: Settings,
        credentials: @escaping @Sendable () throws -> Credentials
    ) throws -> Limiter {
        let calls = CredentialsCalls()
        let limiter = try Limiter.withCredentials(settings: settings, credentials: calls)
        // It ends when the limiter is closed or gone.
        let thread = Thread {
            while calls.waitForCall() {
                do {
                    let given = try credentials()
                    calls.give(password: given.password, username: given.username)
                } catch {
                    calls.fail(message: "\(error)")
                }
            }
        }
        thread.name = "polylimit-credentials"
        thread.start()
        return limiter
    }
}
