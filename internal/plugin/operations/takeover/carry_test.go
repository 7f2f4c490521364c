package takeover

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/racetest"
)

// kubeSystem is the namespace by which clusters are told apart.
func kubeSystem(uid string) string {
	return "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: " + uid + "}}\n"
}

// patch changes an object of the world.
func (w *world) patch(kind schema.GroupVersionKind, name, body string) {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	if kind == installation.Deployments || kind == installation.DaemonSets {
		object.SetNamespace(namespace)
	}
	how := types.MergePatchType
	if strings.HasPrefix(body, "[") {
		how = types.JSONPatchType
	}
	if err := w.bare.Patch(w.t.Context(), object, client.RawPatch(how, []byte(body))); err != nil {
		w.t.Fatal(err)
	}
}

// foresee is what a dry run says, and its error.
func (w *world) foresee(change func(*takeover)) (said string, err error) {
	w.t.Helper()
	var out bytes.Buffer
	c := w.command(filepath.Join(w.t.TempDir(), "backup"), &out)
	c.dryRun = dry
	if change != nil {
		change(c)
	}
	err = c.run(w.t.Context())
	if w.writes > 0 {
		w.t.Errorf("number of writes: got %d, want 0\n%q", w.writes, w.written)
	}
	return out.String(), err
}

// OPS-189: fields that go with a definition are named; if an object has one, nothing is changed.
func TestFieldsThatObjectsWouldLose(t *testing.T) {
	const withReplicas = `[{"op":"replace","path":"/spec/versions/1/schema/openAPIV3Schema","value":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"replicas":{"type":"integer"},"drain":{"type":"string"}}},"status":{"type":"object","properties":{"odd":{"type":"string"}}}}}}]`
	w := newWorld(t, "")
	w.patch(installation.Definitions, "clonesets.apps.kruise.io", withReplicas)
	said, err := w.foresee(nil)
	if want := "clonesets.apps.kruise.io v1beta1 has fields that Afloat does not know, and that no object has set: spec.drain\n"; err != nil {
		t.Errorf("unexpected error: %v\n%s", err, said)
	} else if !strings.Contains(said, want) {
		t.Errorf("said: got %q, want it to contain %q\n%v", said, want, err)
	}
	w = newWorld(t, "")
	w.manifests = withoutSchemas(t) // in which no field is known
	w.patch(installation.Definitions, "clonesets.apps.kruise.io", withReplicas)
	_, err = w.foresee(nil)
	if want := "clonesets.apps.kruise.io v1beta1 has fields that Afloat does not know, and that objects would lose: spec (set in shop/web)"; err == nil {
		t.Error("error: got nil, want an error")
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("error: got %q, want it to contain %q", err.Error(), want)
	}
}

// OPS-180 (part): a workload that is deleted while the takeover looks is not there to be rehearsed.
func TestAWorkloadDeletedMeanwhile(t *testing.T) {
	w := newWorld(t, "")
	said, err := w.foresee(func(c *takeover) {
		c.rehearse = func(ctx context.Context, _ string, name types.NamespacedName) (*explain.Explanation, error) {
			set := &unstructured.Unstructured{}
			set.SetAPIVersion("apps.kruise.io/v1beta1")
			set.SetKind("CloneSet")
			set.SetNamespace(name.Namespace)
			set.SetName(name.Name)
			if err := w.bare.Delete(ctx, set); err != nil {
				t.Errorf("deleting the CloneSet: %v", err)
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "clonesets"}, name.Name)
		}
	})
	if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, said)
	} else if !strings.Contains(said, "rehearsed: 0 workloads") {
		t.Errorf("said: got %q, want it to contain %q\n%v", said, "rehearsed: 0 workloads", err)
	}
}

// OPS-187 (part): the pass of a StatefulSet is rehearsed with the gates that the new manager is going to
// have, which are those of the other one: a set with ordinals.start keeps its pods from 0 on where the other
// release does not obey it.
func TestRehearsedWithTheGatesOfTheNewManager(t *testing.T) {
	w := newWorld(t, "")
	var flags []string
	if _, err := w.foresee(func(c *takeover) {
		rehearse := c.rehearse
		c.rehearse = func(ctx context.Context, kind string, name types.NamespacedName) (*explain.Explanation, error) {
			flags = c.flags
			return rehearse(ctx, kind, name)
		}
	}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(flags, " ")
	if !strings.Contains(text, "StatefulSetStartOrdinal=false") {
		t.Errorf("flags: got %q, want it to contain %q", text, "StatefulSetStartOrdinal=false")
	}
	if !strings.Contains(text, "--cloneset-workers=7") {
		t.Errorf("flags: got %q, want it to contain %q", text, "--cloneset-workers=7")
	}
}

// OPS-180 (part): a node daemon for Windows is not taken over, and that is said.
func TestADaemonForWindowsIsNamed(t *testing.T) {
	said, err := newWorld(t, `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kruise-daemon-win, namespace: kruise-system}
spec:
  selector: {matchLabels: {control-plane: daemon}}
  template: {metadata: {labels: {control-plane: daemon}}, spec: {serviceAccountName: kruise-daemon, containers: [{name: daemon, image: "win:1"}]}}
`).foresee(nil)
	if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, said)
	} else if !strings.Contains(said, "DaemonSet kruise-system/kruise-daemon-win stays as it is") {
		t.Errorf("said: got %q, want it to contain %q\n%v", said, "DaemonSet kruise-system/kruise-daemon-win stays as it is", err)
	}
}

// OPS-188 (part): where the other installation has neither node daemons nor the gate for them, none are
// brought.
func TestNoNodeDaemonsWhereNobodyWantsThem(t *testing.T) {
	w := newWorld(t, "")
	w.patch(installation.Deployments, installation.Manager, `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--feature-gates=KruiseDaemon=false"}]`)
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(installation.DaemonSets)
	set.SetNamespace(namespace)
	set.SetName(installation.Daemon)
	if err := w.bare.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	said, err := w.foresee(nil)
	if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, said)
	} else if !strings.Contains(said, "none are installed") {
		t.Errorf("said: got %q, want it to contain %q\n%v", said, "none are installed", err)
	} else if strings.Contains(said, "DaemonSet kruise-system/kruise-daemon would") {
		t.Errorf("said: got %q, want it not to contain %q\n%v", said, "DaemonSet kruise-system/kruise-daemon would", err)
	}
}

// OPS-180 (part): rights that the other manager has and this project's does not are named, where something
// needs them.
func TestRightsThatAreNeededAreNamed(t *testing.T) {
	w := newWorld(t, `---
apiVersion: v1
kind: ConfigMap
metadata: {name: kruise-configuration, namespace: kruise-system}
data:
  WorkloadSpread_Watch_Custom_Workload_WhiteList: '{"workloads": [{"Group": "kubeflow.org", "Kind": "TFJob", "subResources": [{"Group": "x.org", "Kind": "Part"}]}]}'
`)
	w.patch(installation.Deployments, installation.Manager, `[{"op":"add","path":"/spec/template/spec/containers/0/args/-",
		"value":"--feature-gates=ResourcesDeletionProtection=true,DeletionProtectionForCRDCascadingGate=true"}]`)
	said, err := w.foresee(nil)
	for _, want := range []string{"the other manager may list everything: TFJob.kubeflow.org, Part.x.org", "DeletionProtectionForCRDCascadingGate is on: grant"} {
		if err != nil {
			t.Errorf("unexpected error: %v\n%s", err, said)
		} else if !strings.Contains(said, want) {
			t.Errorf("said: got %q, want it to contain %q\n%v", said, want, err)
		}
	}
}

// OPS-182 (part): a folder is of one cluster, and of what is there: of another cluster, after the way back,
// or after the other installation was changed it is refused, with its name, and nothing is changed.
func TestFoldersOfSomethingElseAreRefused(t *testing.T) {
	racetest.SkipAlone(t)
	folder := filepath.Join(t.TempDir(), "backup")
	prod := newWorld(t, kubeSystem("prod"))
	prod.manifests = withoutSchemas(t)
	there, back := prod.command(folder, io.Discard), prod.command(folder, io.Discard)
	back.back = true
	if err := there.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuses := func(w *world, back bool, want string) {
		t.Helper()
		before := w.state()
		c := w.command(folder, io.Discard)
		c.back = back
		if err := c.run(t.Context()); err == nil {
			t.Error("takeover: got nil, want an error")
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("takeover: got %q, want it to contain %q", err.Error(), want)
		} else if !strings.Contains(err.Error(), folder) {
			t.Errorf("takeover: got %q, want it to contain %q", err.Error(), folder)
		}
		if diff := cmp.Diff(before, w.state()); diff != "" {
			t.Errorf("what is there (-before +after):\n%s", diff)
		}
	}
	for _, back := range []bool{false, true} {
		refuses(newWorld(t, kubeSystem("staging")), back, "is of another cluster, which was called prod")
	}
	if err := back.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, back := range []bool{false, true} {
		refuses(prod, back, "was put back on 2026-01-02T15:04:05Z")
	}
	// An earlier run got no further than the backup, and then the other installation was upgraded.
	folder = filepath.Join(t.TempDir(), "early")
	w := newWorld(t, "")
	early := w.command(folder, io.Discard)
	early.timeout, w.pulls = 20_000_000, "ErrImagePull"
	if err := early.run(t.Context()); err == nil {
		t.Fatal("the image was there")
	}
	w.pulls = ""
	w.patch(installation.Deployments, installation.Manager, `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--cloneset-workers=33"}]`)
	refuses(w, false, "is not of what is there now: Deployment kruise-system/kruise-controller-manager: spec.template.spec.containers")
}

// OPS-181 (part): of the other manager's rights only those of its accounts go. People who are bound to the
// same role, or by the same binding, stay bound, there and back.
func TestRightsThatPeopleHaveToo(t *testing.T) {
	w := newWorld(t, `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kruise-viewer}
rules: [{apiGroups: [apps.kruise.io], resources: ["*"], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kruise-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kruise-viewer}
subjects: [{kind: ServiceAccount, name: kruise-manager, namespace: kruise-system}, {kind: Group, name: sre, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kruise-auditor}
rules: [{apiGroups: [apps.kruise.io], resources: ["*"], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kruise-auditor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kruise-auditor}
subjects: [{kind: ServiceAccount, name: kruise-daemon, namespace: kruise-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: auditors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kruise-auditor}
subjects: [{kind: Group, name: auditors, apiGroup: rbac.authorization.k8s.io}]
`)
	w.manifests = withoutSchemas(t)
	before := w.state()
	folder := filepath.Join(t.TempDir(), "backup")
	if err := w.command(folder, io.Discard).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	who := func(name string) []string {
		var names []string
		binding, err := installation.Get(t.Context(), w.bare, rbac("ClusterRoleBinding"), "", name)
		if err != nil {
			t.Fatal(err)
		}
		if binding != nil {
			for _, subject := range installation.Maps(binding.Object, "subjects") {
				names = append(names, installation.Text(subject, "name"))
			}
		}
		return names
	}
	for name, want := range map[string][]string{"kruise-viewer": {"sre"}, "kruise-auditor": nil, "auditors": {"auditors"}} {
		if diff := cmp.Diff(want, who(name)); diff != "" {
			t.Errorf("subjects of the role (-want +got):\n%s\n%q", diff, name)
		}
	}
	for _, name := range []string{"kruise-viewer", "kruise-auditor"} {
		if role, err := installation.Get(t.Context(), w.bare, rbac("ClusterRole"), "", name); err != nil {
			t.Errorf("reading ClusterRole %s: %v", name, err)
		} else if role == nil {
			t.Errorf("ClusterRole %s is gone", name)
		}
	}
	w.patch(rbac("ClusterRoleBinding"), "kruise-viewer", `[{"op":"add","path":"/subjects/-","value":{"kind":"User","name":"new","apiGroup":"rbac.authorization.k8s.io"}}]`)
	back := w.command(folder, io.Discard)
	back.back = true
	if err := back.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kruise-manager", "sre", "new"}, who("kruise-viewer")); diff != "" {
		t.Errorf("subjects of kruise-viewer (-want +got):\n%s", diff)
	}
	w.patch(rbac("ClusterRoleBinding"), "kruise-viewer", `[{"op":"remove","path":"/subjects/2"}]`)
	if different := differences(before, w.state()); len(different) > 0 {
		t.Errorf("differences from before: got %q, want none", different)
	}
}
