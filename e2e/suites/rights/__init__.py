"""Rights: admission policies, RBAC, the audit log, secrets."""
