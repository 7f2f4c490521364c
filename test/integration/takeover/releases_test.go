//go:build integration

package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// release is how a release of the reference is installed, as far as it differs from the others.
type release struct {
	image, gates string
	// chart: its chart made the objects, and not its manifests.
	chart bool
	// label is that of its namespace, by which the pod webhooks leave it alone.
	label string
	locks []string
	// betas are the kinds that it stores as v1beta1.
	betas []string
}

// releases are those whose installations differ in what a takeover goes by.
var releases = map[string]release{
	"1.3, manifests":   {image: "openkruise/kruise-manager:v1.3.0", gates: "AllAlpha=true", label: "controller-manager", locks: []string{"ConfigMap"}},
	"1.4, chart":       {image: "openkruise/kruise-manager:v1.4.2", chart: true, label: "controller-manager", locks: []string{"ConfigMap", "Lease"}},
	"1.5, chart":       {image: "openkruise/kruise-manager:v1.5.5", gates: "ImagePullJobGate=true", chart: true, label: "openkruise"},
	"1.7.3, manifests": {image: "openkruise/kruise-manager:v1.7.3", gates: "AllAlpha=true,EnableExternalCerts=false", label: "controller-manager"},
	"1.7.5, manifests": {image: "openkruise/kruise-manager:v1.7.5", gates: "AllAlpha=true,AllBeta=true,EnableExternalCerts=false", label: "controller-manager"},
	"1.8, chart":       {image: "openkruise/kruise-manager:v1.8.3", gates: "ImagePullJobGate=true", chart: true, label: "openkruise"},
	"1.9, manifests": {image: "openkruise/kruise-manager:v1.9.0", gates: "AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false",
		label: "controller-manager", betas: []string{"advancedcronjobs", "broadcastjobs", "daemonsets", "imagelistpulljobs", "imagepulljobs", "nodeimages", "sidecarsets"}},
}

// install makes the installation of a release: its namespace, Deployment with its flags, definitions in its
// versions, and webhooks that refuse pods of everybody while nobody serves.
func (c *cluster) install(r release) {
	c.t.Helper()
	c.heals, c.slow, c.paths = true, 5, map[string]bool{}
	if len(r.locks) > 0 {
		c.locks = r.locks
	}
	manifests, err := installation.Manifests(installation.Choice{})
	must(c.t, err)
	objects := c.parse("installation.yaml")
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			object.SetLabels(map[string]string{"control-plane": r.label})
		case "Deployment":
			c.deploy(object, r)
		}
	}
	for _, object := range manifests {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			plural := installation.Text(object.Object, "spec", "names", "plural")
			if slices.Contains([]string{"imagelistpulljobs"}, plural) && r.image < "openkruise/kruise-manager:v1.5" {
				continue
			}
			c.versions(object, plural, r)
			objects = append(objects, object)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			c.webhooks(object, r)
			objects = append(objects, object)
		}
	}
	objects = append(objects, c.parse("unserved.yaml")...)
	owner := "kubectl-client-side-apply"
	if r.chart {
		owner = "helm"
	}
	for _, object := range objects {
		if r.chart {
			object.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "kruise", "meta.helm.sh/release-namespace": "default"})
		}
		if err := c.kube.Create(c.t.Context(), object, client.FieldOwner(owner)); err != nil {
			c.t.Fatalf("creating %s: %v", installation.Of(object), err)
		}
	}
}

// deploy gives the Deployment its image, flags and replicas.
func (c *cluster) deploy(object *unstructured.Unstructured, r release) {
	args := []any{"--enable-leader-election", "--logtostderr=true", "--v=5"}
	replicas := int64(1)
	if r.chart {
		args = append(args, "--metrics-addr=:8080", "--health-probe-addr=:8000", "--leader-election-namespace=kruise-system", "--sync-period=0")
		replicas = 2
	}
	if r.gates != "" {
		args = append(args, "--feature-gates="+r.gates)
	}
	containers := installation.Maps(object.Object, "spec", "template", "spec", "containers")
	containers[0]["image"], containers[0]["args"] = r.image, args
	must(c.t, unstructured.SetNestedSlice(object.Object, []any{containers[0]}, "spec", "template", "spec", "containers"))
	must(c.t, unstructured.SetNestedField(object.Object, replicas, "spec", "replicas"))
}

// versions makes a definition what the release has: v1alpha1 alone, but for StatefulSets, which it converts,
// and what is newer in it.
func (c *cluster) versions(object *unstructured.Unstructured, plural string, r release) {
	conversion := map[string]any{"strategy": "None"}
	converted := map[string]any{"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{"caBundle": c.bundle(), "url": c.other.URL + "/convert"}}}
	var versions []any
	both := plural == "statefulsets" || slices.Contains(r.betas, plural)
	if plural == "statefulsets" || both && (plural == "daemonsets" || plural == "sidecarsets") {
		conversion = converted
	}
	for _, version := range installation.Maps(object.Object, "spec", "versions") {
		if both || version["name"] == "v1alpha1" {
			version["storage"] = !both || version["name"] == "v1beta1"
			versions = append(versions, version)
		}
	}
	must(c.t, unstructured.SetNestedSlice(object.Object, versions, "spec", "versions"))
	must(c.t, unstructured.SetNestedMap(object.Object, conversion, "spec", "conversion"))
}

// webhooks makes a configuration what the release has. Its pod webhook is asked about all pods but those of
// its namespace and its kind.
func (c *cluster) webhooks(object *unstructured.Unstructured, r release) {
	selector := map[string]any{"matchExpressions": []any{map[string]any{"key": "control-plane", "operator": "DoesNotExist"}}}
	if r.label == "openkruise" {
		selector = map[string]any{"matchExpressions": []any{map[string]any{"key": "control-plane", "operator": "NotIn", "values": []any{"openkruise"}},
			map[string]any{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []any{"kube-system"}}}}
	}
	for _, entry := range installation.Entries(object) {
		path := installation.Text(entry, "clientConfig", "service", "path")
		c.paths[path] = true
		entry["clientConfig"] = map[string]any{"caBundle": c.bundle(), "url": c.other.URL + path}
		if entry["name"] == "mpod.kb.io" {
			delete(entry, "matchConditions")
			entry["namespaceSelector"], entry["failurePolicy"], entry["timeoutSeconds"] = selector, "Fail", int64(2)
		}
		for _, rule := range installation.Maps(entry, "rules") {
			resources, _ := rule["resources"].([]any)
			if groups := fmt.Sprint(rule["apiGroups"]); strings.Contains(groups, "kruise.io") && len(resources) > 0 &&
				resources[0] != "statefulsets" && !slices.Contains(r.betas, fmt.Sprint(resources[0])) {
				rule["apiVersions"] = []any{"v1alpha1"}
			}
		}
	}
}

// podsPass sees that pods can be created, in every namespace, by really creating them.
func (c *cluster) podsPass(when string) {
	c.t.Helper()
	var namespaces corev1.NamespaceList
	must(c.t, c.kube.List(c.t.Context(), &namespaces))
	for _, space := range namespaces.Items {
		pod := &corev1.Pod{}
		pod.Namespace, pod.GenerateName = space.Name, "somebody-"
		pod.Spec.AutomountServiceAccountToken = new(false)
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
		if err := c.kube.Create(c.t.Context(), pod); err != nil {
			c.t.Errorf("%s: no pod can be created in namespace %s: %v", when, space.Name, err)
			continue
		}
		must(c.t, c.kube.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0)))
	}
}

// change changes the template of every workload and waits until somebody has seen it, unless the stand-in
// serves, which follows nothing.
func (c *cluster) change(objects []*unstructured.Unstructured, followed bool) {
	c.t.Helper()
	for _, object := range objects {
		if !slices.Contains([]string{"CloneSet", "StatefulSet", "DaemonSet", "SidecarSet", "UnitedDeployment", "PodUnavailableBudget"}, object.GetKind()) {
			continue
		}
		live := c.get(object.GroupVersionKind(), object.GetNamespace(), object.GetName())
		path := []string{"spec", "template", "metadata", "annotations"}
		switch object.GetKind() {
		case "SidecarSet":
			must(c.t, unstructured.SetNestedField(live.Object, 10+live.GetGeneration(), "spec", "revisionHistoryLimit"))
			path = nil
		case "UnitedDeployment":
			path = []string{"spec", "template", "statefulSetTemplate", "spec", "template", "metadata", "annotations"}
		case "PodUnavailableBudget":
			must(c.t, unstructured.SetNestedField(live.Object, fmt.Sprintf("%d%%", 10+live.GetGeneration()), "spec", "maxUnavailable"))
			path = nil
		}
		if path != nil {
			must(c.t, unstructured.SetNestedField(live.Object, fmt.Sprint("n", live.GetGeneration()), append(path, "changed")...))
		}
		c.eventually("changing "+installation.Of(object), func() error { return c.kube.Update(c.t.Context(), live) })
		if !followed {
			continue
		}
		c.eventually("a manager that follows "+installation.Of(object), func() error {
			now := c.get(object.GroupVersionKind(), object.GetNamespace(), object.GetName())
			if seen, _, _ := unstructured.NestedInt64(now.Object, "status", "observedGeneration"); seen < live.GetGeneration() {
				return fmt.Errorf("generation %d, seen %d", live.GetGeneration(), seen)
			}
			return nil
		})
	}
}

// otherRuns waits until the stand-in serves, with its lock.
func (c *cluster) otherRuns() {
	c.t.Helper()
	c.eventually("the other manager", func() error {
		if !c.running.Load() {
			return errors.New("it does not run")
		}
		return nil
	})
}

// stopper is an output that ends a run when it says something.
type stopper struct {
	bytes.Buffer
	at   string
	stop context.CancelFunc
}

func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if s.at != "" && strings.Contains(s.String(), s.at) {
		s.stop()
	}
	return n, err
}

// interrupted runs the command until it says something.
func (c *cluster) interrupted(at string, args ...string) error {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	out := &stopper{at: at, stop: cancel}
	command := plugin.New("kubectl-afloat", genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out})
	command.SetArgs(append(append([]string{"takeover", "--yes", "--timeout=1m"}, args...), "--kubeconfig", c.kubeconfig(c.byCommand.URL)))
	err := command.ExecuteContext(ctx)
	c.t.Log("until", at, args, "\n", out.String(), err)
	return err
}

var newImages = []string{"--image", ours, "--daemon-image", "example.com/afloat/daemon:1"}

// everyRelease tells whether all that takes minutes is tested, as make test-takeover does.
func everyRelease() bool { return os.Getenv("EVERY_RELEASE") != "" }

// OPS-110 (part), OPS-183, OPS-185, OPS-193, OPS-194 (part): from what each release installs, there and back.
// Workloads are changed under both managers, pods can be created in every namespace after each step, the
// label of the namespace is what it was, and both never run at once.
func TestReleasesThereAndBack(t *testing.T) {
	t.Parallel()
	for name, r := range releases {
		if !everyRelease() && name != "1.3, manifests" && name != "1.9, manifests" { // the oldest and the newest
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.install(r)
			c.act()
			c.otherRuns()
			objects := c.createFrom("releases.yaml")
			c.change(objects, false)
			c.podsPass("before")
			folder := filepath.Join(t.TempDir(), "backup")
			out, err := c.run(t.Context(), append(newImages, "--backup", folder)...)
			if err != nil {
				t.Fatalf("the way there: %v\n%v\n%s", err, c.faults, c.logs.String())
			}
			for _, line := range []string{"no manager served for", "webhooks about pods are in force, and pods can be created", "the manager acts on each of"} {
				if !strings.Contains(out, line) {
					t.Errorf("not said: %s", line)
				}
			}
			c.podsPass("there")
			c.change(objects, true)
			out, err = c.run(t.Context(), "--back", "--backup", folder)
			if err != nil {
				t.Fatalf("the way back: %v\n%v\n%s", err, c.faults, c.logs.String())
			}
			if !strings.Contains(out, "the manager acts on each of") {
				t.Fatalf("the way back: got %s, want that the manager acts\n%v\n%s", out, c.faults, c.logs.String())
			}
			c.otherRuns()
			c.podsPass("back")
			c.change(objects, false)
			c.sameInstallation(r)
			for _, object := range objects { // also what Afloat does not serve
				if c.get(object.GroupVersionKind(), object.GetNamespace(), object.GetName()).GetUID() != object.GetUID() {
					t.Errorf("%s is another one", installation.Of(object))
				}
			}
		})
	}
}

// sameInstallation sees that what the other manager goes by is what it was.
func (c *cluster) sameInstallation(r release) {
	c.t.Helper()
	space := &corev1.Namespace{}
	must(c.t, c.kube.Get(c.t.Context(), client.ObjectKey{Name: namespace}, space))
	if space.Labels["control-plane"] != r.label {
		c.t.Errorf("label control-plane is %q, and was %q", space.Labels["control-plane"], r.label)
	}
	for _, entry := range installation.Entries(c.get(installation.MutatingKind, "", installation.Mutating)) {
		if entry["name"] == "mpod.kb.io" && entry["failurePolicy"] != "Fail" {
			c.t.Error("mpod.kb.io is", entry["failurePolicy"])
		}
	}
	deployment := &appsv1.Deployment{}
	must(c.t, c.kube.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: installation.Manager}, deployment))
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != r.image {
		c.t.Error("the manager is", image)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) > 0 {
		c.t.Errorf("faults meanwhile: got %v, want none", c.faults)
	}
}

// OPS-184, OPS-193: a run is interrupted at every step, there and back, and run again. After each, pods can
// be created in every namespace.
func TestInterruptedAtEveryStep(t *testing.T) {
	if !everyRelease() {
		t.Skip("takes minutes: make test-takeover")
	}
	t.Parallel()
	c := newCluster(t)
	r := releases["1.7.5, manifests"]
	c.install(r)
	c.act()
	c.otherRuns()
	objects := c.createFrom("releases.yaml")
	specs := c.specs(objects)
	folder := filepath.Join(t.TempDir(), "backup")
	there := append(slices.Clone(newImages), "--backup", folder)
	for _, at := range []string{"2. Back up", "both images start", "failurePolicy Ignore", "is to have no pods", "its pods are gone", "is free", "Apply", "applied:",
		"no manager served for", "are in force", "Verify", "can be read in"} {
		_ = c.interrupted(at, there...)
		c.podsPass("interrupted at " + at)
	}
	if _, err := c.run(t.Context(), there...); err != nil {
		t.Fatalf("the way there: %v\n%v\n%s", err, c.faults, c.logs.String())
	}
	c.podsPass("there")
	c.change(objects[3:4], true)
	back := []string{"--back", "--backup", folder}
	for _, at := range []string{"2. Store", "3. Note", "is to have no pods", "its pods are gone", "is free", "Put back", "no manager served for", "are in force", "Verify"} {
		_ = c.interrupted(at, back...)
		c.podsPass("back, interrupted at " + at)
	}
	if _, err := c.run(t.Context(), back...); err != nil {
		t.Fatalf("the way back: %v\n%v\n%s", err, c.faults, c.logs.String())
	}
	c.otherRuns()
	c.podsPass("back")
	c.sameInstallation(r)
	delete(specs, installation.Of(objects[3]))
	now := c.specs(objects)
	delete(now, installation.Of(objects[3]))
	if diff := cmp.Diff(specs, now); diff != "" {
		t.Errorf("specs after the way there and back (-want +got):\n%s", diff)
	}
}

// OPS-195, OPS-196: two takeovers at once, and one beside a tool that puts the Deployment back as soon as it
// is changed: never do two managers run, there is a way back, and pods can be created.
func TestTwiceAtOnceAndBesideATool(t *testing.T) {
	if !everyRelease() {
		t.Skip("takes minutes: make test-takeover")
	}
	t.Parallel()
	c := newCluster(t)
	r := releases["1.8, chart"]
	c.install(r)
	var healing sync.Once
	var paused atomic.Bool
	var replicas int32
	c.told = func(deployment *appsv1.Deployment) {
		if replicas == 0 {
			replicas = *deployment.Spec.Replicas
		}
		if paused.Load() || *deployment.Spec.Replicas != 0 || c.running.Load() {
			return
		}
		healing.Do(func() { // when its pods have ended, so that it comes in between
			body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
			if err := c.kube.Patch(context.Background(), deployment.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)),
				client.FieldOwner("healer")); err != nil {
				c.fault("healing: %v", err)
			}
		})
	}
	c.act()
	c.otherRuns()
	c.createFrom("releases.yaml")
	folder := filepath.Join(t.TempDir(), "tool")
	_, err := c.run(t.Context(), append(newImages, "--backup", folder, "--timeout=10s")...)
	if err == nil {
		t.Error("a tool has started the other manager again, and nothing is said")
	}
	c.podsPass("beside a tool")
	c.otherRuns()
	paused.Store(true)

	var done sync.WaitGroup
	results := make([]error, 2)
	for i := range results {
		done.Go(func() {
			results[i] = c.interrupted("", append(newImages, "--backup", folder)...)
		})
		<-time.After(200 * time.Millisecond)
	}
	done.Wait()
	if (results[0] == nil) == (results[1] == nil) {
		t.Errorf("of two at once: %v and %v", results[0], results[1])
	}
	c.podsPass("two at once")
	if _, err := c.run(t.Context(), "--back", "--backup", folder); err != nil {
		t.Fatalf("the way back: %v\n%v\n%s", err, c.faults, c.logs.String())
	}
	c.otherRuns()
	c.podsPass("back")
	c.sameInstallation(r)
}
