// Package template holds the pod and claim templates of the workload kinds: a typed view for reading and writing in Go, beside the
// JSON document that it was read from.
//
// The template fields of the API are schemaless (CS-016), so users may write fields of a Kubernetes version that is newer than the
// libraries this program is built with. Such fields survive decoding, changes of the typed view, and encoding. A document that does
// not fit the types at all still decodes, so that one bad object never breaks a list; it reports why by DecodeError and shows a zero
// typed view.
package template
