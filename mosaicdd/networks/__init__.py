"""Networks of subdomains: architectures, symmetries, the registry, and the subdomain they answer for."""
