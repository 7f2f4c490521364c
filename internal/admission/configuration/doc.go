// Package configuration keeps the webhook configurations and the conversion of CRDs in line: the CA that they
// carry, the entries that this manager serves, and which requests these are about.
//
// Managers of different releases, with different gates, and OpenKruise may share the objects (OPS-110,
// OPS-112): see [Publisher]. A rule for pods that is about to be stored is announced, so that the API server
// sends its first pod: see [Recent].
package configuration
