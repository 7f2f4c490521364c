package fakeapi

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind that the server serves, in one version.
type kind struct {
	metav1.APIResource
	columns []metav1.TableColumnDefinition
	paths   []string
}

func (k *kind) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}
}

// resource returns the plural name, followed by the group unless that is the core group.
func (k *kind) resource() string {
	return schema.GroupResource{Group: k.Group, Resource: k.Name}.String()
}

// holds reports whether the object is of the kind.
func (k *kind) holds(object *unstructured.Unstructured) bool {
	return k.Kind == object.GetKind() && k.groupVersion().String() == object.GetAPIVersion()
}

// core returns a kind of Kubernetes.
func core(group, version, plural, singular string, namespaced bool, short ...string) *kind {
	k := &kind{APIResource: metav1.APIResource{
		Group:        group,
		Version:      version,
		Name:         plural,
		SingularName: strings.ToLower(singular),
		Kind:         singular,
		Namespaced:   namespaced,
		ShortNames:   short,
	}}
	k.complete()
	return k
}

// complete sets the verbs, and adds the column with the name.
func (k *kind) complete() {
	k.Verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	k.columns = append(
		[]metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}, k.columns...)
}

func coreKinds() []*kind {
	return []*kind{
		core("", "v1", "pods", "Pod", true, "po"),
		core("", "v1", "services", "Service", true, "svc"),
		core("", "v1", "nodes", "Node", false, "no"),
		core("", "v1", "namespaces", "Namespace", false, "ns"),
		core("", "v1", "events", "Event", true, "ev"),
		core("", "v1", "configmaps", "ConfigMap", true, "cm"),
		core("", "v1", "secrets", "Secret", true),
		core("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, "pvc"),
		core("", "v1", "replicationcontrollers", "ReplicationController", true, "rc"),
		core("apps", "v1", "deployments", "Deployment", true, "deploy"),
		core("apps", "v1", "replicasets", "ReplicaSet", true, "rs"),
		core("apps", "v1", "statefulsets", "StatefulSet", true, "sts"),
		core("apps", "v1", "daemonsets", "DaemonSet", true, "ds"),
		core("apps", "v1", "controllerrevisions", "ControllerRevision", true),
		core("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true, "hpa"),
		core("batch", "v1", "jobs", "Job", true),
		core("batch", "v1", "cronjobs", "CronJob", true, "cj"),
	}
}

var (
	header = regexp.MustCompile(
		`^# (\S+)/(\S+) kind=(\S+) plural=(\S+) singular=(\S+) shortNames=(\S*) .*scope=(\S+) `)
	column = regexp.MustCompile(`^# column: (.+) (\S+) (\.\S+) priority=(\d)`)
)

// root is the root folder of the repository. Tests run in the folders of their packages.
var root, _ = filepath.Abs("../../../..")

// ownKinds returns the project's kinds in one version with their columns, according to docs/spec/fields,
// which the generated CRDs match. A kind without that version is returned in the version that it has.
func ownKinds(t testing.TB, version string) []*kind {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs/spec/fields/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no lists of fields: ", err)
	}

	chosen := map[string]*kind{}
	var order []string

	for _, file := range files {
		k := readKind(t, file)
		if old := chosen[k.Name+k.Group]; old == nil {
			order = append(order, k.Name+k.Group)
		} else if k.Version != version {
			continue
		}
		chosen[k.Name+k.Group] = k
	}

	var all []*kind
	for _, key := range order {
		all = append(all, chosen[key])
	}
	return all
}

// readKind reads the kind that a file of docs/spec/fields describes.
func readKind(t testing.TB, file string) *kind {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()

	k := &kind{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := header.FindStringSubmatch(lines.Text()); m != nil {
			k.APIResource = metav1.APIResource{
				Group:        m[1],
				Version:      m[2],
				Kind:         m[3],
				Name:         m[4],
				SingularName: m[5],
				Namespaced:   m[7] == "Namespaced",
			}
			if m[6] != "" {
				k.ShortNames = strings.Split(m[6], ",")
			}
		}

		if m := column.FindStringSubmatch(lines.Text()); m != nil && m[4] == "0" && m[2] != "date" {
			k.columns = append(k.columns, metav1.TableColumnDefinition{Name: m[1], Type: m[2]})
			k.paths = append(k.paths, m[3])
		}
	}

	k.complete()
	return k
}
