// Package framework is what a kind declares, and what its webhooks are made of: reading objects of both versions
// without losing fields that the types do not have, conversion, defaulting and validating pod templates as the API
// server does, and the responses to requests.
//
// Documents are validated and patched as they were sent, so that fields unknown to the libraries are kept.
package framework
