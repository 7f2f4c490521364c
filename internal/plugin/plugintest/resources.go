package plugintest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/memcluster/httpserver"
)

// resource is a resource that the server serves, in one version, with its printed columns.
type resource struct {
	httpserver.Resource
	columns []metav1.TableColumnDefinition
	paths   []string // the fields of the columns but the first, which is the name
}

// newResource returns a resource without columns of its own.
func newResource(gv schema.GroupVersion, kind, plural string, namespaced bool, short ...string) resource {
	r := resource{
		Resource: httpserver.NewResource(gv, kind, plural, namespaced),
		columns:  []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}},
	}
	r.ShortNames = short
	return r
}

func (r resource) groupVersion() schema.GroupVersion { return r.In }

func (r resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

// key returns the key under which the server stores an object.
func (r resource) key(namespace, name string) string {
	return strings.Join([]string{r.Group, r.Name, namespace, name}, "/")
}

// asTable reports whether a request is for a table.
func asTable(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Table") }

// table returns objects as a table for kubectl get.
func (r resource) table(now string, objects ...*unstructured.Unstructured) *metav1.Table {
	table := &metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta:          metav1.ListMeta{ResourceVersion: now},
		ColumnDefinitions: r.columns,
		Rows:              []metav1.TableRow{},
	}
	for _, object := range objects {
		row := metav1.TableRow{Cells: []any{object.GetName()}}
		for _, path := range r.paths {
			value, _, _ := unstructured.NestedFieldNoCopy(object.Object,
				strings.Split(strings.Trim(path, "."), ".")...)
			row.Cells = append(row.Cells, value)
		}

		row.Object.Raw, _ = json.Marshal(map[string]any{
			"kind":       "PartialObjectMetadata",
			"apiVersion": "meta.k8s.io/v1",
			"metadata":   object.Object["metadata"],
		})
		table.Rows = append(table.Rows, row)
	}

	return table
}

// target is what the path of a request names.
type target struct {
	resource
	namespace, name, subresource string
}

// holds reports whether the key belongs to an object in the target's namespace, or in any if it has none.
func (t target) holds(key string) bool {
	if t.namespace == "" {
		return strings.HasPrefix(key, t.Group+"/"+t.Name+"/")
	}
	return strings.HasPrefix(key, t.key(t.namespace, ""))
}

// native lists the resources of Kubernetes, with group and version, kind, plural and short name.
const native = `v1 Pod pods po
v1 Service services svc
v1 Node nodes no
v1 Namespace namespaces ns
v1 Event events ev
v1 ConfigMap configmaps cm
v1 Secret secrets
v1 ServiceAccount serviceaccounts sa
v1 PersistentVolumeClaim persistentvolumeclaims pvc
v1 ReplicationController replicationcontrollers rc
apps/v1 Deployment deployments deploy
apps/v1 ReplicaSet replicasets rs
apps/v1 StatefulSet statefulsets sts
apps/v1 DaemonSet daemonsets ds
apps/v1 ControllerRevision controllerrevisions
autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers hpa
batch/v1 Job jobs
batch/v1 CronJob cronjobs cj
rbac.authorization.k8s.io/v1 RoleBinding rolebindings
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings`

// clusterScoped are the native kinds without a namespace.
var clusterScoped = []string{"Node", "Namespace", "ClusterRoleBinding"}

// parseGroupVersion parses a group and version that is known to be one.
func parseGroupVersion(text string) schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		panic(err)
	}
	return gv
}

// resources returns the resources of Kubernetes, and those of the project in the given version, or in the one
// that they have, as docs/spec/fields lists them.
func resources(t testing.TB, version string) []resource {
	t.Helper()
	var all []resource
	for line := range strings.SplitSeq(native, "\n") {
		part := strings.Fields(line)
		all = append(all, newResource(parseGroupVersion(part[0]), part[1], part[2],
			!slices.Contains(clusterScoped, part[1]), part[3:]...))
	}

	files, err := filepath.Glob(filepath.Join(repository, "docs/spec/fields/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no lists of fields: ", err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		own := described(string(text))
		same := func(r resource) bool { return r.groupResource() == own.groupResource() }
		if i := slices.IndexFunc(all, same); i < 0 {
			all = append(all, own)
		} else if own.Version == version {
			all[i] = own
		}
	}

	return all
}

var (
	header = regexp.MustCompile(`^# (\S+) kind=(\S+) plural=(\S+) singular=\S+ shortNames=(\S*) .*scope=(\S+) `)
	column = regexp.MustCompile(`(?m)^# column: (.+) (\S+) (\.\S+) priority=0`)
)

// described returns the resource that a file of docs/spec/fields describes, which the generated CRDs match.
func described(text string) resource {
	is := header.FindStringSubmatch(text)
	own := newResource(parseGroupVersion(is[1]), is[2], is[3], is[5] == "Namespaced")
	if is[4] != "" {
		own.ShortNames = strings.Split(is[4], ",")
	}

	for _, m := range column.FindAllStringSubmatch(text, -1) {
		if m[2] != "date" {
			own.columns = append(own.columns, metav1.TableColumnDefinition{Name: m[1], Type: m[2]})
			own.paths = append(own.paths, m[3])
		}
	}
	return own
}

// repository is the root folder of the repository: the one with go.mod, above that in which a test begins.
var repository = func() string {
	folder, _ := os.Getwd()
	for ; folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
	}
	return folder
}()

// Serve adds a resource to those that the server serves, such as Rollout and rollouts of
// rollouts.kruise.io/v1beta1.
func (s *Server) Serve(groupVersion, kind, plural string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = append(s.resources, newResource(parseGroupVersion(groupVersion), kind, plural, true))
	s.served = nil
}

// Without stops serving the resources with these plural names, such as clonesets.apps.kruise.io.
func (s *Server) Without(plurals ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = slices.DeleteFunc(s.resources, func(r resource) bool {
		return slices.Contains(plurals, r.groupResource().String())
	})
	s.served = nil
}

// byKind returns the resource of a kind.
func (s *Server) byKind(kind schema.GroupVersionKind) (resource, bool) {
	for _, r := range s.resources {
		if r.groupVersion().WithKind(r.Kind) == kind {
			return r, true
		}
	}
	return resource{}, false
}

// parse parses a path, and returns false if it is not that of a resource that is served.
func (s *Server) parse(path string) (target, bool) {
	parsed, ok := httpserver.ParsePath(path)
	if !ok || parsed.Subresource != "" && parsed.Subresource != "status" {
		return target{}, false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for _, r := range s.resources {
		if r.In.WithResource(r.Name) == parsed.GroupVersionResource {
			return target{r, parsed.Namespace, parsed.Name, parsed.Subresource}, true
		}
	}
	return target{}, false
}

// discovery returns the answer to a discovery request, or nil for all other paths.
func (s *Server) discovery(path string) any {
	s.mu.Lock()
	defer s.mu.Unlock()

	entries := make([]httpserver.Resource, len(s.resources))
	for i, r := range s.resources {
		entries[i] = r.Resource
	}
	return httpserver.Discovery(path, "v1.36.3", entries)
}
