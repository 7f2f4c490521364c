package takeover

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/plugin/explain"
	"github.com/afloat-project/afloat/internal/plugin/installation"
)

func init() { // before that of the world, which makes the mapper
	worldScheme.AddKnownTypeWithName(appsv1alpha1.GroupVersion.WithKind("NodePodProbe"), &unstructured.Unstructured{})
	worldScheme.AddKnownTypeWithName(appsv1alpha1.GroupVersion.WithKind("NodePodProbeList"), &unstructured.UnstructuredList{})
}

// kubeSystem is the namespace by which clusters are told apart.
func kubeSystem(uid string) string {
	return "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, uid: " + uid + "}}\n"
}

// nodePodProbes are definition and object of a kind of which the other manager makes one for each node.
func nodePodProbes(spec string) string {
	return `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodepodprobes.apps.kruise.io}
spec:
  group: apps.kruise.io
  names: {kind: NodePodProbe, plural: nodepodprobes}
  scope: Cluster
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
status: {storedVersions: [v1alpha1]}
---
{apiVersion: apps.kruise.io/v1alpha1, kind: NodePodProbe, metadata: {name: node-1}, spec: ` + spec + `}
`
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
		w.t.Error(w.written)
	}
	return out.String(), err
}

// OPS-181 (part): the other manager makes a NodePodProbe for each node. As long as there is nothing to probe, nobody uses the kind.
func TestAClusterIsNotInUseByWhatTheOtherManagerMakes(t *testing.T) {
	said, err := newWorld(t, nodePodProbes("{}")).foresee(nil)
	if err != nil || !strings.Contains(said, "1 NodePodProbe (0 in use)") {
		t.Error(err, said)
	}
	_, err = newWorld(t, nodePodProbes("{podProbes: [{name: db-0, namespace: shop}]}")).foresee(nil)
	if err == nil || !strings.Contains(err.Error(), "NodePodProbe (1 object)") {
		t.Error(err)
	}
}

// OPS-189: fields that go with a definition are named; if an object has one, nothing is changed.
func TestFieldsThatObjectsWouldLose(t *testing.T) {
	const withReplicas = `[{"op":"replace","path":"/spec/versions/1/schema/openAPIV3Schema","value":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"replicas":{"type":"integer"},"drain":{"type":"string"}}},"status":{"type":"object","properties":{"odd":{"type":"string"}}}}}}]`
	w := newWorld(t, "")
	w.patch(installation.Definitions, "clonesets.apps.kruise.io", withReplicas)
	said, err := w.foresee(nil)
	if want := "clonesets.apps.kruise.io v1beta1 has fields that Afloat does not know, and that no object has set: spec.drain\n"; err != nil ||
		!strings.Contains(said, want) {
		t.Error(err, said)
	}
	w = newWorld(t, "")
	w.manifests = withoutSchemas(t) // in which no field is known
	w.patch(installation.Definitions, "clonesets.apps.kruise.io", withReplicas)
	_, err = w.foresee(nil)
	if want := "clonesets.apps.kruise.io v1beta1 has fields that Afloat does not know, and that objects would lose: spec (set in shop/web)"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Error(err)
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
				t.Error(err)
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "clonesets"}, name.Name)
		}
	})
	if err != nil || !strings.Contains(said, "rehearsed: 0 workloads") {
		t.Error(err, said)
	}
}

// OPS-187 (part): the pass of a StatefulSet is rehearsed with the gates that the new manager is going to have, which are those of the other one:
// a set with ordinals.start keeps its pods from 0 on where the other release does not obey it.
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
	if text := strings.Join(flags, " "); !strings.Contains(text, "StatefulSetStartOrdinal=false") || !strings.Contains(text, "--cloneset-workers=7") {
		t.Error(text)
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
	if err != nil || !strings.Contains(said, "DaemonSet kruise-system/kruise-daemon-win stays as it is") {
		t.Error(err, said)
	}
}

// OPS-188 (part): where the other installation has neither node daemons nor the gate for them, none are brought.
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
	if err != nil || !strings.Contains(said, "none are installed") || strings.Contains(said, "DaemonSet kruise-system/kruise-daemon would") {
		t.Error(err, said)
	}
}

// OPS-182 (part): a folder is of one cluster, and of what is there: of another cluster, after the way back, or after the other installation was
// changed it is refused, with its name, and nothing is changed.
func TestFoldersOfSomethingElseAreRefused(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "backup")
	prod := newWorld(t, kubeSystem("prod"))
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
		if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), folder) {
			t.Error(err)
		}
		if diff := cmp.Diff(before, w.state()); diff != "" {
			t.Error(diff)
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

// OPS-181 (part): of the other manager's rights only those of its accounts go. People who are bound to the same role, or by the same binding, stay
// bound, there and back.
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
			t.Error(name, diff)
		}
	}
	for _, name := range []string{"kruise-viewer", "kruise-auditor"} {
		if role, err := installation.Get(t.Context(), w.bare, rbac("ClusterRole"), "", name); err != nil || role == nil {
			t.Error(name, "is gone", err)
		}
	}
	w.patch(rbac("ClusterRoleBinding"), "kruise-viewer", `[{"op":"add","path":"/subjects/-","value":{"kind":"User","name":"new","apiGroup":"rbac.authorization.k8s.io"}}]`)
	back := w.command(folder, io.Discard)
	back.back = true
	if err := back.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kruise-manager", "sre", "new"}, who("kruise-viewer")); diff != "" {
		t.Error(diff)
	}
	w.patch(rbac("ClusterRoleBinding"), "kruise-viewer", `[{"op":"remove","path":"/subjects/2"}]`)
	if different := differences(before, w.state()); len(different) > 0 {
		t.Error(different)
	}
}

// changedManifests are those of this release with a change to the pod template of the manager, as --manifests names them.
func changedManifests(t *testing.T, change func(spec, container map[string]any)) string {
	t.Helper()
	objects, err := installation.Manifests(installation.Choice{Path: withoutSchemas(t)})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, object := range objects {
		if object.GetKind() == installation.Deployments.Kind {
			spec, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
			change(spec.(map[string]any), mainContainer(object))
		}
		one, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(one, "---\n"...))
	}
	path := filepath.Join(t.TempDir(), "changed.yaml")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// theirsWith is a Deployment or DaemonSet of the other installation.
func theirsWith(t *testing.T, kind, metadata, spec, container string) *unstructured.Unstructured {
	t.Helper()
	name := map[string]string{"Deployment": "manager", "DaemonSet": "daemon"}[kind]
	objects, err := installation.Parse([]byte(`{apiVersion: apps/v1, kind: ` + kind + `, metadata: {name: x}, spec: {replicas: 1, template: {metadata: {labels: {control-plane: controller-manager}` +
		metadata + `}, spec: {` + spec + `containers: [{name: ` + name + `, image: "k:v1.8.0"` + container + `}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0]
}

// OPS-188 (part): what the pods of the other installation need to work is carried over, and what is not is named.
func TestWhatPodsNeedIsCarriedOver(t *testing.T) {
	for name, test := range map[string]struct {
		kind, metadata, spec, container string
		want                            map[string]string // by path
		said                            string
	}{
		"API servers that do not reach pods": {kind: "Deployment", spec: `hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, `,
			want: map[string]string{"spec.template.spec.hostNetwork": "true", "spec.template.spec.dnsPolicy": "ClusterFirstWithHostNet", "spec.replicas": "1"},
			said: "pod template hands over: dnsPolicy, hostNetwork"},
		"ports that are free on the nodes": {kind: "Deployment", spec: `hostNetwork: true, `,
			container: `, args: ["--metrics-addr=127.0.0.1:18080", "--health-probe-addr=:18000"], env: [{name: WEBHOOK_PORT, value: "19876"}]`,
			want: map[string]string{"spec.template.spec.containers.0.args": "[--v=3 --health-probe-addr=:18000 --metrics-addr=:18080]",
				"spec.template.spec.containers.0.ports.0.containerPort": "19876", "spec.template.spec.containers.0.ports.1.containerPort": "18080",
				"spec.template.spec.containers.0.ports.2.containerPort": "18000", "Service.spec.ports.0.targetPort": "19876"},
			said: "port health 18000, port metrics 18080, port webhook 19876"},
		"usual ports": {kind: "Deployment", container: `, args: ["--metrics-addr=:8080", "--health-probe-addr=:8000"], env: [{name: WEBHOOK_PORT, value: "9876"}]`,
			want: map[string]string{"spec.template.spec.containers.0.args": "[--v=3]", "spec.template.spec.containers.0.ports.0.containerPort": "9876"}},
		"nodes for it": {kind: "Deployment", spec: `priorityClassName: infra, affinity: {nodeAffinity: {}}, nodeSelector: {pool: infra}, tolerations: [{key: infra}], topologySpreadConstraints: [{maxSkew: 2}], `,
			want: map[string]string{"spec.template.spec.priorityClassName": "infra", "spec.template.spec.nodeSelector": "map[pool:infra]",
				"spec.template.spec.affinity": "map[nodeAffinity:map[]]", "spec.template.spec.topologySpreadConstraints": "[map[maxSkew:2]]"},
			said: "pod template hands over: affinity, nodeSelector, priorityClassName, tolerations, topologySpreadConstraints"},
		"annotations and labels": {kind: "Deployment", metadata: `, annotations: {sidecar.istio.io/inject: "false", kubectl.kubernetes.io/restartedAt: x}`,
			want: map[string]string{"spec.template.metadata.annotations": "map[sidecar.istio.io/inject:false]"}, said: "metadata sidecar.istio.io/inject"},
		"a proxy": {kind: "Deployment", container: `, env: [{name: HTTPS_PROXY, value: p}, {name: KUBE_CACHE_MUTATION_DETECTOR, value: "true"}]`,
			want: map[string]string{"spec.template.spec.containers.0.env.2": "map[name:HTTPS_PROXY value:p]"}},
		"what is not carried over": {kind: "Deployment", spec: `hostPID: true, shareProcessNamespace: true, `, container: `, resources: {limits: {memory: 8Gi}}}, {name: proxy`,
			said: "pod template has what is not carried over: hostPID, shareProcessNamespace, containers besides manager, resources (limit of memory 8Gi); add what you need by --manifests"},
		"sockets in another folder": {kind: "DaemonSet", spec: `volumes: [{name: runtime-socket, hostPath: {path: /run/k3s}}], `,
			container: `, volumeMounts: [{name: runtime-socket, mountPath: /hostvarrun}]`,
			want:      map[string]string{"spec.template.spec.volumes": "[map[hostPath:map[path:/run/k3s] name:runtime-sockets]]"}, said: "volume runtime-socket at /hostvarrun"},
		"a plugin for credentials": {kind: "DaemonSet", spec: `nodeSelector: {gpu: "yes"}, volumes: [{name: plugin, hostPath: {path: /opt}}, {name: s, hostPath: {path: /var/run}}], `,
			container: `, args: [--plugin-bin-dir=/plugin], volumeMounts: [{name: plugin, mountPath: /plugin}, {name: s, mountPath: /hostvarrun}]`,
			want: map[string]string{"spec.template.spec.volumes.1": "map[hostPath:map[path:/opt] name:plugin]", "spec.template.spec.containers.0.volumeMounts.1": "map[mountPath:/plugin name:plugin]",
				"spec.template.spec.nodeSelector": "map[gpu:yes kubernetes.io/os:linux]"}},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, err := installation.Manifests(installation.Choice{})
			if err != nil {
				t.Fatal(err)
			}
			object := map[string]string{"Deployment": installation.Manager, "DaemonSet": installation.Daemon}[test.kind]
			workload := installation.Find(manifests, test.kind, object)
			c := carry(theirsWith(t, test.kind, test.metadata, test.spec, test.container), workload, nil)
			s := &seen{carriedManager: c}
			if test.kind == "DaemonSet" {
				s = &seen{carriedDaemon: c}
			}
			if err := (&takeover{}).carryInto(s, manifests); err != nil {
				t.Fatal(err)
			}
			for path, want := range test.want {
				from := workload
				if rest, ok := strings.CutPrefix(path, "Service."); ok {
					from, path = installation.Find(manifests, "Service", installation.Service), rest
				}
				if got := at(from.Object, path); got != want {
					t.Errorf("%s is %s, want %s", path, got, want)
				}
			}
			if text := strings.Join(c.Notes, "\n"); !strings.Contains(text, test.said) {
				t.Errorf("not said: %s, but %s", test.said, text)
			}
		})
	}
}

// OPS-188 (part): what --manifests says is not undone by what the other installation had: gate by gate, flag by flag, field by field.
func TestWhatIsMeantByOtherManifestsHolds(t *testing.T) {
	theirs := theirsWith(t, "Deployment", "", "imagePullSecrets: [{name: old}], nodeSelector: {pool: old}, ",
		`, args: ["--cloneset-workers=7", "--sync-period=1h", "--feature-gates=CloneSetShortHash=true,SidecarTerminator=false,WorkloadSpread=false"], env: [{name: CERTS_RENEW_BEFORE, value: 90d}]`)
	path := changedManifests(t, func(spec, container map[string]any) {
		spec["imagePullSecrets"] = []any{map[string]any{"name": "new"}}
		container["args"] = append(container["args"].([]any), "--cloneset-workers=9", "--feature-gates=SidecarTerminator=true,AllBeta=true")
		container["env"] = append(container["env"].([]any), map[string]any{"name": "CERTS_RENEW_BEFORE", "value": "60d"})
	})
	manifests, err := installation.Manifests(installation.Choice{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	manager := installation.Find(manifests, "Deployment", installation.Manager)
	r := newReading("k:v1.9.0", nil)
	s := &seen{carriedManager: carry(theirs, manager, r)}
	c := &takeover{choice: installation.Choice{Path: path}}
	if err := c.carryInto(s, manifests); err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, arg := range texts(mainContainer(manager)["args"]) {
		if strings.HasPrefix(arg, "--feature-gates=") {
			list += arg
		}
	}
	for want, is := range map[string]bool{"--feature-gates=SidecarTerminator=true,AllBeta=true,CloneSetShortHash=true": true, "SidecarTerminator=false": false,
		"WorkloadSpread": false, "StatefulSetStartOrdinal=false": true} {
		if strings.Contains(list, want) != is {
			t.Errorf("%s: %v", list, want)
		}
	}
	args := texts(mainContainer(manager)["args"])
	if !slices.Contains(args, "--cloneset-workers=9") || slices.Contains(args, "--cloneset-workers=7") || !slices.Contains(args, "--sync-period=1h") {
		t.Error(args)
	}
	for path, want := range map[string]string{"spec.template.spec.imagePullSecrets": "[map[name:new]]", "spec.template.spec.nodeSelector": "map[pool:old]",
		"spec.template.spec.containers.0.env.2": "map[name:CERTS_RENEW_BEFORE value:60d]"} {
		if got := at(manager.Object, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	pod, err := c.imagePodOf(manifests, s)
	if err != nil || at(pod.Object, "spec.imagePullSecrets") != "[map[name:new]]" {
		t.Error(err, pod)
	}
}

// imagePodOf is the pod that tries the images of manifests.
func (t *takeover) imagePodOf(manifests []*unstructured.Unstructured, s *seen) (*unstructured.Unstructured, error) {
	t.manifests = manifests
	return t.imagePod(s)
}

// at is what stands at a path of a document, in Go's words.
func at(value any, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return "none"
			}
			value = v[i]
		}
	}
	return fmt.Sprint(value)
}
