package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

//go:embed kwok-stages.yaml
var kwokStages []byte

// manySimulated is the number of simulated nodes above which they have no leases. They stay Ready
// nevertheless.
const manySimulated = 500

const simulatedKey = "afloat.dev/simulated"

// kwok writes the configuration of kwok, which acts as the kubelet of the simulated nodes only, and returns
// the program.
func (c *cluster) kwok() (program, error) {
	config := filepath.Join(c.dir, "kwok.yaml")
	stages := kwokStages
	// Many leases would keep the API server busy, and nobody waits for them.
	if c.spec.Simulated > manySimulated {
		stages = bytes.Replace(stages, []byte("nodeLeaseDurationSeconds: 40"),
			[]byte("nodeLeaseDurationSeconds: 0"), 1)
	}
	if err := writeFile(config, stages, 0o644); err != nil {
		return program{}, err
	}

	return program{name: "kwok", path: c.bin["kwok"], args: []string{
		"--kubeconfig=" + c.pki("kwok.kubeconfig"), "--config=" + config,
		"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + simulatedKey + "=true",
		fmt.Sprintf("--server-address=127.0.0.1:%d", c.spec.Ports.Kwok),
	}}, nil
}

func simulatedName(i int) string { return fmt.Sprintf("sim%d", i) }

// applySimulatedNodes creates the Node objects; kwok keeps them Ready. If there are also real nodes, the
// simulated ones have a taint, so that only pods that tolerate it are scheduled there.
func (c *cluster) applySimulatedNodes(ctx context.Context, a *api) error {
	var all errgroup.Group
	all.SetLimit(16)
	for i := 1; i <= c.spec.Simulated; i++ {
		all.Go(func() error { return c.applySimulatedNode(ctx, a, i) })
	}
	return all.Wait()
}

func (c *cluster) applySimulatedNode(ctx context.Context, a *api, i int) error {
	resources := object{"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "500"}
	name := simulatedName(i)
	specification := object{}
	if c.spec.Nodes > 0 {
		specification["taints"] = []object{{"key": simulatedKey, "value": "true", "effect": "NoSchedule"}}
	}

	n := object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "labels": object{
			simulatedKey: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
			"kubernetes.io/arch":          "amd64",
			"topology.kubernetes.io/zone": zone(i),
		}},
		"spec": specification,
	}
	path := "/api/v1/nodes/" + name
	if err := a.apply(ctx, path, n); err != nil {
		return fmt.Errorf("make simulated node: %w", err)
	}

	delete(n, "spec")
	n["metadata"] = object{"name": name}
	n["status"] = object{"capacity": resources, "allocatable": resources,
		"nodeInfo": object{"kubeletVersion": c.spec.Version, "operatingSystem": "linux",
			"architecture": "amd64", "machineID": name, "systemUUID": name, "bootID": name,
			"kernelVersion": "simulated", "osImage": "simulated", "containerRuntimeVersion": "sim://1",
			"kubeProxyVersion": ""}}
	if err := a.apply(ctx, path+"/status", n); err != nil {
		return fmt.Errorf("give simulated node its resources: %w", err)
	}

	return nil
}
