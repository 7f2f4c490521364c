package takeover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// changedManifests are those of this release with a change to the pod template of the manager, as --manifests
// names them.
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

// OPS-188: what the pods of the other installation need to work is carried over, and what is not is named.
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
		"what schedules and resolves": {kind: "Deployment", spec: `schedulerName: own, runtimeClassName: gvisor, hostAliases: [{ip: 192.0.2.1}], imagePullSecrets: [{name: pull}], `,
			want: map[string]string{"spec.template.spec.schedulerName": "own", "spec.template.spec.runtimeClassName": "gvisor",
				"spec.template.spec.hostAliases": "[map[ip:192.0.2.1]]", "spec.template.spec.imagePullSecrets": "[map[name:pull]]"}},
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

// OPS-199: what --manifests says is not undone by what the other installation had: gate by gate, flag by
// flag, field by field.
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
			t.Errorf("%s: the list has what is wanted: got %t, want %t\n%v", list, strings.Contains(list, want), is,
				want)
		}
	}
	args := texts(mainContainer(manager)["args"])
	if !slices.Contains(args, "--cloneset-workers=9") {
		t.Errorf("args: got %q, want it to contain %q", args, "--cloneset-workers=9")
	}
	if slices.Contains(args, "--cloneset-workers=7") {
		t.Errorf("args: got %q, want it not to contain %q", args, "--cloneset-workers=7")
	}
	if !slices.Contains(args, "--sync-period=1h") {
		t.Errorf("args: got %q, want it to contain %q", args, "--sync-period=1h")
	}
	for path, want := range map[string]string{"spec.template.spec.imagePullSecrets": "[map[name:new]]", "spec.template.spec.nodeSelector": "map[pool:old]",
		"spec.template.spec.containers.0.env.2": "map[name:CERTS_RENEW_BEFORE value:60d]"} {
		if got := at(manager.Object, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	pod, err := c.imagePodOf(manifests, s)
	if err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, pod)
	} else if got := at(pod.Object, "spec.imagePullSecrets"); got != "[map[name:new]]" {
		t.Errorf("pull secrets of the pod: got %q, want %q\n%v\n%+v", got, "[map[name:new]]", err, pod)
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
