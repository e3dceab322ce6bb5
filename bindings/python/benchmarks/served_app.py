"""The application that `served` runs under a server; the environment selects it."""

import os

import frameworks

make = {"flask": frameworks.flask_apps, "fastapi": frameworks.fastapi_apps}[os.environ["FRAMEWORK"]]
app = make(os.environ["STORE"] or None)[os.environ["WHICH"]]
