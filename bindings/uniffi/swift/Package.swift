// swift-tools-version: 5.9
import PackageDescription

// The library is linked from the folder that the caller names: swift/test passes the one into which cargo has built it.
let package = Package(
    name: "polylimit",
    // `Duration` of the standard library.
    platforms: [.macOS(.v13), .iOS(.v16)],
    products: [.library(name: "Polylimit", targets: ["Polylimit"])],
    targets: [
        .systemLibrary(name: "PolylimitFFI"),
        .target(name: "Polylimit", dependencies: ["PolylimitFFI"], linkerSettings: [.linkedLibrary("polylimit_uniffi")]),
        .executableTarget(name: "Quickstart", dependencies: ["Polylimit"]),
        .testTarget(name: "PolylimitTests", dependencies: ["Polylimit"]),
    ]
)
