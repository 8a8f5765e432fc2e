"""Questions of VTC to servers: which server it is, its APIs and models, and the status of another VTC."""
