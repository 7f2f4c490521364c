//go:build integration

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// account is whom the shipped roles are bound to.
const account = "system:serviceaccount:kruise-system:kruise-manager"

// narrow applies the shipped roles and bindings, and makes managers act with these rights alone.
func (i *installation) narrow() {
	i.t.Helper()
	daemons := &corev1.Namespace{}
	daemons.Name = "kruise-daemon-config"
	i.create(daemons)
	for _, file := range []string{"role.yaml", "bindings.yaml"} {
		i.apply(filepath.Join("../../config/rbac", file))
	}
	config, err := clientcmd.LoadFromFile(i.kubeconfig)
	if err != nil {
		i.t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = account
	}
	if err := clientcmd.WriteToFile(*config, i.kubeconfig); err != nil {
		i.t.Fatal(err)
	}
}

// apply creates the objects of a file.
func (i *installation) apply(file string) {
	i.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		i.t.Fatal(err)
	}
	for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			i.t.Fatal(err)
		}
		if object.Object != nil {
			i.create(object)
		}
	}
}

// OPS-039: a gate that is on without the rights that its kind needs stops that kind alone: CloneSets get
// their pods, the replica is ready and healthy, and metric and event name the kind. It joins when the rights
// are given, without a restart.
func TestAKindWithoutRightsStopsAlone(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.narrow()
	manager := i.replica("--feature-gates=ResourceDistributionGate=true")
	manager.becomesReady()
	web, copies := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	for text, object := range map[string]*unstructured.Unstructured{
		`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {namespace: default, name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
			template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "i:1"}]}}}}`: web,
		`{apiVersion: apps.kruise.io/v1beta1, kind: ResourceDistribution, metadata: {name: copies}, spec: {
			resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: copied}, data: {a: b}}, targets: {includedNamespaces: {list: [{name: default}]}}}}`: copies,
	} {
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		i.create(object)
	}
	i.eventually("pods of the CloneSet", func() error {
		pods := &corev1.PodList{}
		err := i.kube.List(t.Context(), pods, client.MatchingLabels{"app": "web"})
		if len(pods.Items) != 2 {
			err = errors.Join(err, fmt.Errorf("%d pods", len(pods.Items)))
		}
		return err
	})
	manager.shows(`afloat_watch_failing{group="apps.kruise.io",kind="ResourceDistribution"} 1`, `afloat_controller_working{controller="cloneset"} 1`)
	i.eventually("an event", func() error {
		events := &corev1.EventList{}
		if err := i.kube.List(t.Context(), events, client.InNamespace("kruise-system")); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == kindNotWatched && strings.Contains(event.Message, "ResourceDistribution") {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them says it", len(events.Items))
	})
	for _, path := range []string{"/readyz", "/healthz"} {
		if _, err := manager.get("http://" + manager.probes + path); err != nil {
			t.Errorf("probe %s: %v", path, err)
		}
	}
	binding := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: later}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
		name: kruise-manager-resourcedistribution-role}, subjects: [{kind: ServiceAccount, namespace: kruise-system, name: kruise-manager}]}`), &binding.Object); err != nil {
		t.Fatal(err)
	}
	i.create(binding)
	reconciled := func() error {
		copied := &corev1.ConfigMap{}
		return i.kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "copied"}, copied)
	}
	for range 2 { // lists are tried again after up to a minute
		if i.soon(reconciled) == nil {
			return
		}
	}
	t.Fatal("the kind does not join when its rights are given")
}
