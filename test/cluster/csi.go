package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// csiDriver is the name of the driver in the folder csi.
const csiDriver = "csi.afloat.dev"

// csiDir returns the folder of the volumes with their records, and of the driver's sockets.
func (c *cluster) csiDir() string { return filepath.Join(c.dir, "csi") }

// volumes returns the folder that contains a folder for each volume; see volumes.go of the driver.
func (c *cluster) volumes() string { return filepath.Join(c.csiDir(), "volumes") }

// csiPrograms returns the driver and the controllers that call it. The controllers retry quickly, so that
// tests need not wait long.
func (c *cluster) csiPrograms() []program {
	driver := program{name: "csi-driver", path: c.bin["csi-driver"], args: []string{"--dir=" + c.csiDir()}}
	for _, node := range c.nodeNames() {
		driver.args = append(driver.args, "--node="+node+"="+c.nodeDir(node, "kubelet"))
	}

	programs := []program{driver}
	for _, name := range []string{"csi-provisioner", "csi-resizer"} {
		programs = append(programs, program{name: name, path: c.bin[name], args: []string{
			"--kubeconfig=" + c.pki(name+".kubeconfig"),
			"--csi-address=" + filepath.Join(c.csiDir(), "controller.sock"),
			"--retry-interval-start=500ms", "--retry-interval-max=4s", "--kube-api-qps=50",
			"--kube-api-burst=100",
		}})
	}

	return programs
}

// csiRules are the permissions of the controllers: those that their projects ship, without what only
// snapshots, topology, attached volumes and leader election need.
var csiRules = map[string][]object{
	"csi-provisioner": {
		rule("", "persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
		rule("", "persistentvolumeclaims", "get", "list", "watch", "update"),
		rule("", "nodes", "get", "list", "watch"),
		rule("", "events", "list", "watch", "create", "update", "patch"),
		rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
	},
	"csi-resizer": {
		rule("", "persistentvolumes", "get", "list", "watch", "patch"),
		rule("", "persistentvolumeclaims", "get", "list", "watch"),
		rule("", "persistentvolumeclaims/status", "patch"),
		rule("", "pods", "get", "list", "watch"),
		rule("", "events", "list", "watch", "create", "update", "patch"),
	},
}

func rule(group, resource string, verbs ...string) object {
	return object{"apiGroups": []string{group}, "resources": []string{resource}, "verbs": verbs}
}

// startCSI starts the driver, and creates the objects that it needs in the API server.
func (c *cluster) startCSI(ctx context.Context, a *api) error {
	const rbac, storage = "rbac.authorization.k8s.io/v1", "storage.k8s.io/v1"
	apply := func(group, resource, kind, name string, o object) error {
		o["apiVersion"], o["kind"], o["metadata"] = group, kind, object{"name": name}
		if err := a.apply(ctx, "/apis/"+group+"/"+resource+"/"+name, o); err != nil {
			return fmt.Errorf("make %s %s: %w", kind, name, err)
		}
		return nil
	}

	for name, rules := range csiRules {
		if err := apply(rbac, "clusterroles", "ClusterRole", name, object{"rules": rules}); err != nil {
			return err
		}
		if err := apply(rbac, "clusterrolebindings", "ClusterRoleBinding", name, object{
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
			"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}},
		}); err != nil {
			return err
		}
	}

	if err := apply(storage, "csidrivers", "CSIDriver", csiDriver, object{"spec": object{
		"attachRequired": false, "podInfoOnMount": false, "volumeLifecycleModes": []string{"Persistent"},
	}}); err != nil {
		return err
	}

	for name, grows := range map[string]bool{"afloat-grow": true, "afloat-grow-offline": true,
		"afloat-fixed": false} {
		class := object{"provisioner": csiDriver, "allowVolumeExpansion": grows,
			"volumeBindingMode": "WaitForFirstConsumer"}
		if name == "afloat-grow-offline" {
			class["parameters"] = object{"expansion": "offline"}
		}
		if err := apply(storage, "storageclasses", "StorageClass", name, class); err != nil {
			return err
		}
	}

	for _, p := range c.csiPrograms() {
		if _, err := c.start(p); err != nil {
			return err
		}
		if p.name == "csi-driver" {
			if err := c.waitSocket(ctx, p.name, filepath.Join(c.csiDir(), "controller.sock")); err != nil {
				return err
			}
		}
	}

	return nil
}

// csiNodes returns an error unless the kubelets of all nodes know the driver.
func (c *cluster) csiNodes(ctx context.Context, a *api) error {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Drivers []struct{ Name string } }
		}
	}

	if err := a.get(ctx, "/apis/storage.k8s.io/v1/csinodes", &list); err != nil {
		return err
	}

	know := map[string]bool{}
	for _, node := range list.Items {
		for _, driver := range node.Spec.Drivers {
			know[node.Metadata.Name] = know[node.Metadata.Name] || driver.Name == csiDriver
		}
	}

	for _, name := range c.nodeNames() {
		if !know[name] {
			return fmt.Errorf("the kubelet of %s does not know driver %s", name, csiDriver)
		}
	}

	return nil
}
