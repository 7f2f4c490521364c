//go:build integration

package takeover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// alone are the definitions that have v1alpha1 alone, as in older releases of the reference.
var alone = []string{"sidecarsets", "workloadspreads", "podunavailablebudgets", "daemonsets", "persistentpodstates"}

// installTheirs makes the installation of the reference.
func (c *cluster) installTheirs() {
	c.t.Helper()
	bundle := c.bundle()
	manifests, err := installation.Manifests(installation.Choice{})
	if err != nil {
		c.t.Fatal(err)
	}
	objects := c.parse("installation.yaml")
	for _, object := range manifests {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			conversion := map[string]any{"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v1"},
				"clientConfig": map[string]any{"caBundle": bundle, "url": c.other.URL + "/convert"}}}
			if slices.Contains(alone, installation.Text(object.Object, "spec", "names", "plural")) {
				for _, version := range installation.Maps(object.Object, "spec", "versions") {
					if version["name"] == "v1alpha1" {
						version["storage"] = true
						must(c.t, unstructured.SetNestedSlice(object.Object, []any{version}, "spec", "versions"))
					}
				}
				conversion = map[string]any{"strategy": "None"}
			}
			if installation.Text(object.Object, "spec", "conversion", "strategy") == "Webhook" {
				must(c.t, unstructured.SetNestedMap(object.Object, conversion, "spec", "conversion"))
			}
			objects = append(objects, object)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			for _, entry := range installation.Entries(object) {
				entry["clientConfig"] = map[string]any{"caBundle": bundle, "url": c.other.URL + installation.Text(entry, "clientConfig",
					"service", "path")}
				for _, rule := range installation.Maps(entry, "rules") {
					if resources, _ := rule["resources"].([]any); len(resources) > 0 && slices.Contains(alone, fmt.Sprint(resources[0])) {
						rule["apiVersions"] = []any{"v1alpha1"}
					}
				}
			}
			entries, _ := object.Object["webhooks"].([]any)
			object.Object["webhooks"] = append(entries, map[string]any{"name": string(object.GetKind()[0]+'a'-'A') + "gamemarker.kb.io",
				"admissionReviewVersions": []any{"v1"}, "sideEffects": "None",
				"clientConfig": map[string]any{"caBundle": bundle, "url": c.other.URL + "/gamemarker"},
				"rules": []any{map[string]any{"apiGroups": []any{"apps.kruise.io"}, "apiVersions": []any{"v1alpha1"},
					"operations": []any{"CREATE"}, "resources": []any{"gamemarkers"}}}})
			object.SetAnnotations(map[string]string{"template": "[]"})
			objects = append(objects, object)
		}
	}
	for _, object := range objects {
		if err := c.kube.Create(c.t.Context(), object, client.FieldOwner("helm")); err != nil {
			c.t.Fatalf("creating %s: %v", installation.Of(object), err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) parse(file string) []*unstructured.Unstructured {
	c.t.Helper()
	text, err := os.ReadFile(file)
	must(c.t, err)
	objects, err := installation.Parse(text)
	must(c.t, err)
	return objects
}

var placeholder = regexp.MustCompile(`UID\((\w+/[\w-]+)\)`)

// createFixtures makes what the reference leaves.
func (c *cluster) createFixtures() []*unstructured.Unstructured {
	c.t.Helper()
	return c.createFrom("fixtures.yaml")
}

// createFrom makes the objects of a file, with their statuses.
func (c *cluster) createFrom(file string) []*unstructured.Unstructured {
	c.t.Helper()
	text, err := os.ReadFile(file)
	must(c.t, err)
	uids := map[string]string{}
	var all []*unstructured.Unstructured
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		part = placeholder.ReplaceAllStringFunc(part, func(s string) string { return uids[placeholder.FindStringSubmatch(s)[1]] })
		objects, err := installation.Parse([]byte(part))
		must(c.t, err)
		object := objects[0]
		status := object.Object["status"]
		// A definition may not be served at once.
		c.eventually("creating "+installation.Of(object), func() error { return c.kube.Create(c.t.Context(), object) })
		uids[object.GetKind()+"/"+object.GetName()] = string(object.GetUID())
		if status != nil {
			object.Object["status"] = status
			if err := c.kube.Status().Update(c.t.Context(), object); err != nil {
				c.t.Fatalf("status of %s: %v", installation.Of(object), err)
			}
		}
		all = append(all, object)
	}
	return all
}

// eventually repeats what has to succeed.
func (c *cluster) eventually(what string, do func() error) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %v\nfaults: %v\nmanager: %s", what, err, c.faults, c.logs.String())
		}
		<-time.After(100 * time.Millisecond)
	}
}

// run runs the command through the recording proxy.
func (c *cluster) run(ctx context.Context, args ...string) (string, error) {
	return c.plugin(ctx, append([]string{"takeover", "--yes", "--timeout=1m"}, args...)...)
}

func (c *cluster) plugin(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	command := plugin.New("kubectl-afloat", genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	command.SetArgs(append(args, "--kubeconfig", c.kubeconfig(c.byCommand.URL)))
	err := command.ExecuteContext(ctx)
	c.t.Log(strings.Join(args, " "), "\n", out.String(), err)
	return out.String(), err
}

// specs are the specs of the objects, in the version in which they were made.
func (c *cluster) specs(objects []*unstructured.Unstructured) map[string]any {
	c.t.Helper()
	specs := map[string]any{}
	for _, object := range objects {
		live := c.get(object.GroupVersionKind(), object.GetNamespace(), object.GetName())
		if live.GetUID() != object.GetUID() {
			c.t.Errorf("%s is another object", installation.Of(object))
		}
		specs[installation.Of(object)] = live.Object["spec"]
	}
	return specs
}

// pods are the pods of users, whole.
func (c *cluster) pods() map[string]any {
	c.t.Helper()
	pods := map[string]any{}
	must(c.t, installation.Each(c.t.Context(), c.kube, installation.Pods, func(pod *unstructured.Unstructured) error {
		pods[pod.GetName()] = pod.DeepCopy().Object
		return nil
	}, client.InNamespace("shop")))
	return pods
}

// unwritten fails if somebody wrote a pod of a user.
func (c *cluster) unwritten() {
	c.t.Helper()
	for _, p := range []*proxy{c.byManager, c.byCommand} {
		for _, write := range p.with("/pods") {
			if !strings.Contains(write, "/namespaces/"+namespace+"/pods") {
				c.t.Errorf("a pod was written: %s", write)
			}
		}
		for _, write := range p.with("/namespaces/shop/controllerrevisions") {
			c.t.Errorf("a revision was written: %s", write)
		}
	}
}

// OPS-110 (part), OPS-112 (part), OPS-180, OPS-185, CS-043 (part): the manager takes over from the
// reference's where every kind is in use, in v1alpha1 and v1beta1, and gives back. No pod and no revision of
// users is written, no object is another one, and at no time do both managers run or lead.
func TestThereAndBack(t *testing.T) {
	t.Parallel() // each test has an API server of its own, and mostly waits
	c := newCluster(t)
	c.installTheirs()
	c.act()
	c.eventually("the other manager", func() error {
		if !c.running.Load() {
			return fmt.Errorf("it does not run")
		}
		return nil
	})
	objects := c.createFixtures()
	pods, specs := c.pods(), c.specs(objects)
	folder := filepath.Join(t.TempDir(), "backup")
	images := []string{"--image", ours, "--daemon-image", "example.com/afloat/daemon:1", "--backup", folder}

	out, err := c.run(t.Context(), append(images, "--dry-run")...)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "rehearsed: 4 workloads, of which 0 would have pods touched") {
		t.Fatalf("the rehearsal: got %s, want 4 workloads and no pods touched", out)
	}
	for _, line := range []string{"flags of the manager carried over: --enable-leader-election --leader-election-namespace=kruise-system --feature-gates=CloneSetShortHash=false",
		"--frobnicate=yes is not carried over", "PodDisruptionBudget kruise-system/kruise-controller-manager would be created",
		"nothing was changed"} {
		if !strings.Contains(out, line) {
			t.Errorf("not said: %s", line)
		}
	}
	if writes := c.byCommand.with(""); len(writes) > 0 {
		t.Fatalf("a dry run wrote %v", writes)
	}

	// Interrupted after the stop.
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for c.running.Load() {
			<-time.After(10 * time.Millisecond)
		}
		cancel()
	}()
	if out, err := c.run(ctx, images...); err == nil {
		t.Fatalf("not interrupted: %s", out)
	}
	<-stopped
	out, err = c.run(t.Context(), images...)
	if err != nil {
		t.Fatalf("the way there: %v\n%v\n%s", err, c.faults, c.logs.String())
	}
	for _, line := range []string{"the lock kruise-system/kruise-manager is free", "no manager served for",
		"all of 3 pods have the UID, the restarts and the spec that they had"} {
		if !strings.Contains(out, line) {
			t.Errorf("not said: %s", line)
		}
	}
	deployment := c.get(installation.Deployments, namespace, installation.Manager)
	containers := installation.Maps(deployment.Object, "spec", "template", "spec", "containers")
	if len(containers) != 1 {
		t.Errorf("containers of the manager: got %v, want one", containers)
	} else if containers[0]["image"] != ours {
		t.Errorf("image of the manager: got %v, want %s", containers[0]["image"], ours)
	} else if env := installation.Maps(containers[0], "env"); len(env) != 2 {
		t.Errorf("environment of the manager: got %v, want 2 variables", env)
	} else if args := containers[0]["args"].([]any); !slices.Contains(args,
		any("--leader-election-namespace=kruise-system")) {
		t.Errorf("arguments of the manager: got %v, want the namespace of its lock", args)
	}
	for _, kind := range []schema.GroupVersionKind{installation.MutatingKind, installation.ValidatingKind} {
		name := map[string]string{installation.MutatingKind.Kind: installation.Mutating,
			installation.ValidatingKind.Kind: installation.Validating}[kind.Kind]
		for _, entry := range installation.Entries(c.get(kind, "", name)) {
			if strings.Contains(installation.Text(entry, "name"), "gamemarker") {
				t.Errorf("entry %v is still there", entry["name"])
			}
		}
	}
	binding := c.get(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}, "",
		"kruise-manager-rolebinding")
	if role := installation.Text(binding.Object, "roleRef", "name"); role != "kruise-manager-role" {
		t.Errorf("bound to %s", role)
	}
	// Every controller has made its pass over its object.
	c.eventually("passes of the manager", func() error {
		for _, of := range []string{"sidecarsets/shipper", "workloadspreads/spread", "podunavailablebudgets/calm"} {
			if len(c.byManager.with(of+"/status")) == 0 {
				return fmt.Errorf("no status of %s", of)
			}
		}
		return nil
	})
	if diff := cmp.Diff(pods, c.pods()); diff != "" {
		t.Errorf("pods after the way there (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(specs, c.specs(objects)); diff != "" {
		t.Errorf("specs after the way there (-want +got):\n%s", diff)
	}
	c.unwritten()
	// No probe begins anew, and no place is forgotten.
	for _, of := range []string{"nodepodprobes/node-a", "podprobemarkers/game", "persistentpodstates/places"} {
		if writes := c.byManager.with(of); len(writes) > 0 {
			t.Errorf("written: %v", writes)
		}
	}

	c.eventually("the PodProbeMarker goes by which the takeover saw that the manager acts", func() error {
		probe := &unstructured.Unstructured{}
		probe.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "PodProbeMarker"})
		err := c.kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "afloat-takeover-probe"}, probe)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})

	// What the doctor finds wrong is what the stand-ins lack: a Secret, endpoints of the Service, node
	// daemons.
	before := len(c.byCommand.with(""))
	out, err = c.plugin(t.Context(), "doctor")
	if err == nil {
		t.Errorf("the doctor finds nothing wrong: %s", out)
	}
	if wrote := c.byCommand.with("")[before:]; len(wrote) > 0 {
		t.Errorf("the doctor wrote %v", wrote)
	}
	for _, line := range []string{fmt.Sprintf("%d definitions compared with those of this release", len(registry.Kinds)), "5 workloads looked at",
		"3 pods of workloads looked at", "4 requests and jobs looked at",
		"1 budget looked at", "2 of 2 replicas are ready", "it has no node daemon", "it has no ready endpoint"} {
		if !strings.Contains(out, line) {
			t.Errorf("the doctor does not say: %s", line)
		}
	}
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "problem") && !strings.Contains(line, "Secret") && !strings.Contains(line, "endpoint") &&
			!strings.Contains(line, "node daemon") {
			t.Errorf("the doctor says: %s", line)
		}
	}

	// The garbage collector, which does not run here, takes what the probes of the first run left.
	left := &appsv1.ControllerRevisionList{}
	must(t, c.kube.List(t.Context(), left))
	for i := range left.Items {
		if strings.HasPrefix(left.Items[i].Name, "afloat-takeover-probe") {
			must(t, c.kube.Delete(t.Context(), &left.Items[i]))
		}
	}

	// Again is nothing new.
	if _, err := c.run(t.Context(), images...); err != nil {
		t.Fatal(err)
	}
	if _, err := c.run(t.Context(), "--back", "--backup", folder); err != nil {
		t.Fatalf("the way back: %v\n%v\n%s", err, c.faults, c.logs.String())
	}
	if diff := cmp.Diff(pods, c.pods()); diff != "" {
		t.Errorf("pods after the way back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(specs, c.specs(objects)); diff != "" {
		t.Errorf("specs after the way back (-want +got):\n%s", diff)
	}
	c.unwritten()
	for _, plural := range alone {
		group := "apps.kruise.io"
		if plural == "podunavailablebudgets" {
			group = "policy.kruise.io"
		}
		definition := c.get(installation.Definitions, "", plural+"."+group)
		stored, _, _ := unstructured.NestedStringSlice(definition.Object, "status", "storedVersions")
		if !slices.Equal(stored, []string{"v1alpha1"}) {
			t.Errorf("%s: stored in %v, want v1alpha1", plural, stored)
		}
		if n := len(installation.Maps(definition.Object, "spec", "versions")); n != 1 {
			t.Errorf("%s: got %d versions, want 1", plural, n)
		}
	}
	// What only this project has is gone again, but for namespaces.
	saved, err := os.ReadFile(filepath.Join(folder, "index.json"))
	must(t, err)
	var index struct {
		Absent []struct{ APIVersion, Kind, Namespace, Name string }
	}
	must(t, json.Unmarshal(saved, &index))
	for _, of := range index.Absent {
		live, err := installation.Get(t.Context(), c.kube, schema.FromAPIVersionAndKind(of.APIVersion, of.Kind), of.Namespace, of.Name)
		if err != nil {
			t.Errorf("reading %s %s: %v", of.Kind, of.Name, err)
		}
		if want := of.Kind == "Namespace"; (live != nil) != want {
			t.Errorf("%s %s is there: got %t, want %t", of.Kind, of.Name, live != nil, want)
		}
	}
	if len(index.Absent) < 10 {
		t.Errorf("what was not there before: got %v, want 10 at least", index.Absent)
	}
	deployment = c.get(installation.Deployments, namespace, installation.Manager)
	containers = installation.Maps(deployment.Object, "spec", "template", "spec", "containers")
	if len(containers) != 2 || containers[0]["image"] != theirs {
		t.Errorf("containers of the manager after the way back: got %v, want 2, the first with image %s",
			containers, theirs)
	}
	if len(c.faults) > 0 {
		t.Errorf("faults meanwhile: got %v, want none", c.faults)
	}
}
