// Package certificate keeps the certificate of the webhook server and tells the API server which authority to
// trust.
//
// The material lives in one Secret that all replicas share (OPS-041), or in the certificate directory when
// running outside a cluster (OPS-048). Every replica runs the same pass (OPS-042), in this order:
//
//  1. read the material; make, renew or stage what is needed, under optimistic locking (OPS-044, OPS-045);
//  2. publish the authorities in the webhook configurations and CRDs, if they are not there already;
//  3. write the serving certificate to the directory from which the server reloads it (OPS-047).
//
// A new authority takes over in three steps, so that no call ever meets a certificate it does not trust
// (OPS-046). It is staged: the old one still signs what is served, both are published. After settleTime, when
// every API server has seen the bundle, it is promoted: replicas serve its certificate, both stay published.
// After overlapTime the old one is dropped; a replica that could not read the material for half of that time
// is not ready by then, so nobody calls one that still serves the old certificate. Each replica counts these
// times by its own clock, from when it saw the step.
//
// Managers of different releases, with different gates, and the reference may share the objects (OPS-110,
// OPS-112): see publisher. With external certificates (OPS-050) a pass only reads, compares and writes files.
package certificate
