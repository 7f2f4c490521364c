// Package monitoring tests what is shipped for Prometheus and Grafana in config/monitoring, with Prometheus'
// own libraries: that expressions parse and use metrics and labels that exist, that each alert comes when it
// must and stays away when all is well, and that dashboards are what Grafana reads.
//
// It is a module of its own, so that the product does not depend on Prometheus' server. Which metrics exist
// is read from docs/operate/metrics.md, which a test of the product compares with its code, and from
// libraries.txt, which a test in test/integration compares with a running manager.
package monitoring
