// Package admission is the webhook server: the admission of the project's kinds and of pods, the conversion of
// versions, and the maintenance of certificates and webhook configurations. [Setup] registers all of it.
//
// The defaults and rules of a kind are in its own folder (internal/kinds/...), and what the webhooks of kinds have
// in common is in internal/framework; this package serves the requests.
package admission
