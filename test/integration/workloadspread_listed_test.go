//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// WS-016, WS-020, WS-024, WS-026: a kind that a user lists is spread by its scale. When it is removed from
// the list, the status stays, and an event says so.
func TestWorkloadSpreadOfAListedKind(t *testing.T) {
	const number = `{type: object, properties: {replicas: {type: integer}}}`
	made(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: games.integration.example.com},
		spec: {group: integration.example.com, scope: Namespaced, names: {kind: Game, plural: games, singular: game}, versions: [{name: v1, served: true, storage: true,
		subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}, schema: {openAPIV3Schema: {type: object, properties: {spec: `+number+`, status: `+number+`}}}}]}}`)
	text, err := json.Marshal(`{"workloads":[{"Group":"integration.example.com","Kind":"Game"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	list := made(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kruise-system, name: kruise-configuration}, data: {WorkloadSpread_Watch_Custom_Workload_WhiteList: %s}}`, text))
	game := `{apiVersion: integration.example.com/v1, kind: Game, metadata: {namespace: default, name: chess}, spec: {replicas: 4}}`
	// served in a moment
	if err := wait(func() error { return kube.Create(t.Context(), document(t, game), client.DryRunAll) }); err != nil {
		t.Fatal(err)
	}
	target := made(t, game)
	spread := document(t, `{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {namespace: default, name: chess}, spec: {targetRef: {apiVersion: integration.example.com/v1, kind: Game, name: chess},
		subsets: [{name: a, maxReplicas: 50%}, {name: b}]}}`)
	if err := wait(func() error { return kube.Create(t.Context(), spread) }); err != nil { // until the list is read
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), spread) })
	countsBecome(t, "chess", map[string]string{"": "a 0 2, b 0 -1"})
	if err := kube.Patch(t.Context(), list, client.RawPatch(types.MergePatchType, []byte(`{"data":null}`))); err != nil {
		t.Fatal(err)
	}
	another := document(t, `{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {namespace: default, name: another}, spec: {targetRef: {apiVersion: integration.example.com/v1, kind: Game, name: another},
		subsets: [{name: a}]}}`)
	if err := wait(func() error { // until the list is read again: new objects are not supported then
		err := kube.Create(t.Context(), another.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "not listed") {
			return fmt.Errorf("answer %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := kube.Patch(t.Context(), target, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":8}}`))); err != nil {
		t.Fatal(err)
	}
	hasEvent(t, spread, "ReplicasUnknown", "an administrator has not listed it")
	countsBecome(t, "chess", map[string]string{"": "a 0 2, b 0 -1"})
}

func document(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}
