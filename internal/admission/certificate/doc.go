// Package certificate maintains the certificate of the webhook server, and publishes the CA that the API
// server must trust.
//
// The material lives in one Secret that all replicas share (OPS-041), or in the certificate directory when
// running outside a cluster (OPS-048). Every replica runs the same pass (OPS-042), in this order:
//
//  1. read the material; create, renew or stage what is needed, with optimistic locking (OPS-044, OPS-045);
//  2. publish the CAs in the webhook configurations and CRDs, unless they are already there, by package
//     configuration;
//  3. write the serving certificate to the directory from which the server reloads it (OPS-047).
//
// A new CA takes over in three steps, so that no call ever meets a certificate that it does not trust
// (OPS-046). First it is staged: the old CA still signs the certificate that is served, and both CAs are
// published. After settleTime, when every API server has seen the bundle, it is promoted: replicas serve its
// certificate, and both CAs stay published. After overlapTime the old CA is dropped. A replica that could not
// read the material for half of that time is not ready by then, so nobody calls a replica that still serves
// the old certificate. Each replica measures these times by its own clock, from when it saw the step.
//
// With external certificates (OPS-050) a pass only reads, compares and writes files.
package certificate
