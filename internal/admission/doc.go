// Package admission is the webhook server: the admission of the project's kinds, the conversion of their versions, and the upkeep of
// certificates and webhook configurations. [Setup] registers all of it.
//
// What a kind's defaults and rules are stands in the room of the kind (internal/kinds/...); here is what the requests look like.
// Documents are judged and patched as they came, so that fields that the libraries do not know survive.
package admission
