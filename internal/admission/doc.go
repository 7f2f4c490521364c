// Package admission is the webhook server: the admission of the project's kinds, the conversion of their
// versions, and the maintenance of certificates and webhook configurations. [Setup] registers all of it.
//
// The defaults and rules of a kind are in its own folder (internal/kinds/...); this package handles the
// requests. Documents are validated and patched as they were sent, so that fields unknown to the libraries
// are kept.
package admission
