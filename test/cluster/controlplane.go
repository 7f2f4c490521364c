package main

import (
	_ "embed"
	"fmt"
	"path/filepath"
)

//go:embed audit-policy.yaml
var auditPolicy []byte

func (c *cluster) auditLog() string { return filepath.Join(c.dir, "logs", "audit.log") }

func (c *cluster) apiServer() program {
	// Loopback cannot be advertised. Without root, nothing uses the advertised address, so any address will
	// do.
	advertise := c.address()
	if !c.spec.Root {
		advertise = "192.0.2.1"
	}

	return program{name: "kube-apiserver", path: c.bin["kube-apiserver"], args: []string{
		"--bind-address=" + c.address(), "--advertise-address=" + advertise,
		fmt.Sprintf("--secure-port=%d", c.spec.Ports.API),
		fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", c.spec.Ports.Etcd),
		"--etcd-cafile=" + c.pki("ca.crt"),
		"--etcd-certfile=" + c.pki("etcd-client.crt"), "--etcd-keyfile=" + c.pki("etcd-client.key"),
		"--service-cluster-ip-range=" + c.serviceCIDR(),
		"--allow-privileged", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
		"--client-ca-file=" + c.pki("ca.crt"),
		"--tls-cert-file=" + c.pki("kube-apiserver.crt"),
		"--tls-private-key-file=" + c.pki("kube-apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki("sa.pub"),
		"--service-account-signing-key-file=" + c.pki("sa.key"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + c.pki("kubelet-client.key"),
		// Calls to webhooks and aggregated servers go to pod addresses.
		"--enable-aggregator-routing", "--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--audit-policy-file=" + filepath.Join(c.dir, "audit-policy.yaml"),
		"--audit-log-path=" + c.auditLog(),
		"--audit-log-maxsize=2000", "--audit-log-mode=blocking",
	}}
}

func (c *cluster) controllerManager() program {
	config := c.pki("kube-controller-manager.kubeconfig")
	grace := "50s"
	if c.spec.Simulated > manySimulated {
		grace = "24h"
	}

	return program{name: "kube-controller-manager", path: c.bin["kube-controller-manager"], args: []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.spec.Ports.ControllerManager),
		"--leader-elect=false",
		// Any certificate for loopback will do.
		"--tls-cert-file=" + c.pki("etcd.crt"), "--tls-private-key-file=" + c.pki("etcd.key"),
		"--use-service-account-credentials", "--service-account-private-key-file=" + c.pki("sa.key"),
		"--root-ca-file=" + c.pki("ca.crt"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"), "--cluster-signing-key-file=" + c.pki("ca.key"),
		"--service-cluster-ip-range=" + c.serviceCIDR(), "--enable-hostpath-provisioner",
		"--node-monitor-grace-period=" + grace, "--kube-api-qps=200", "--kube-api-burst=400",
	}}
}

func (c *cluster) scheduler() program {
	config := c.pki("kube-scheduler.kubeconfig")
	return program{name: "kube-scheduler", path: c.bin["kube-scheduler"], args: []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config,
		"--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.spec.Ports.Scheduler),
		"--leader-elect=false",
		"--tls-cert-file=" + c.pki("etcd.crt"), "--tls-private-key-file=" + c.pki("etcd.key"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	}}
}

// proxy serves all nodes of the cluster, because they share a network. It does not change settings of the
// machine.
func (c *cluster) proxy() program {
	return program{name: "kube-proxy", path: c.bin["kube-proxy"], args: []string{
		"--kubeconfig=" + c.pki("kube-proxy.kubeconfig"), "--hostname-override=node1",
		"--proxy-mode=iptables",
		"--cluster-cidr=" + c.podCIDR(), "--iptables-min-sync-period=100ms",
		"--iptables-localhost-nodeports=false",
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
		"--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256",
		"--oom-score-adj=0",
	}}
}
