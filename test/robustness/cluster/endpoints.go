package cluster

import (
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applydiscoveryv1 "k8s.io/client-go/applyconfigurations/discovery/v1"
)

// service is the Service that the webhook configurations name.
const service = "kruise-webhook-service"

// Publish makes the managers the endpoints of the webhooks, each while it is ready, until the context ends.
// In a cluster a kubelet and a controller do this. The first endpoints are there when it returns.
func (c *Cluster) Publish(ctx context.Context, managers []*Manager) error {
	// Nothing may look for pods of the Service.
	if _, err := c.Kube.CoreV1().Services(Namespace).Patch(ctx, service, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/selector"}]`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("changing the Service of the webhooks: %w", err)
	}
	server, err := url.Parse(c.Server())
	if err != nil {
		return fmt.Errorf("the API server's address: %w", err)
	}
	for _, m := range managers {
		if err := c.publish(ctx, m, server.Hostname(), true); err != nil {
			return err
		}
		go c.follow(ctx, m, server.Hostname())
	}
	return nil
}

// follow publishes what becomes of the readiness of a manager.
func (c *Cluster) follow(ctx context.Context, m *Manager, address string) {
	published := true
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// What could not be written is tried again with the next tick.
		if ready := m.IsReady(ctx); ready != published && c.publish(ctx, m, address, ready) == nil {
			published = ready
		}
	}
}

func (c *Cluster) publish(ctx context.Context, m *Manager, address string, ready bool) error {
	slice := applydiscoveryv1.EndpointSlice(service+"-"+m.Name, Namespace).
		WithLabels(map[string]string{
			discoveryv1.LabelServiceName: service,
			discoveryv1.LabelManagedBy:   agent,
		}).
		WithAddressType(discoveryv1.AddressTypeIPv4).
		WithPorts(applydiscoveryv1.EndpointPort().WithName("webhook").WithPort(int32(m.Port)).
			WithProtocol(corev1.ProtocolTCP)).
		WithEndpoints(applydiscoveryv1.Endpoint().WithAddresses(address).
			WithConditions(applydiscoveryv1.EndpointConditions().WithReady(ready)))
	_, err := c.Kube.DiscoveryV1().EndpointSlices(Namespace).Apply(ctx, slice,
		metav1.ApplyOptions{FieldManager: agent, Force: true})
	if err != nil {
		return fmt.Errorf("publishing manager %s: %w", m.Name, err)
	}
	return nil
}
