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
	"k8s.io/apimachinery/pkg/version"
)

// resource is a resource that the server serves, in one version, with its printed columns.
type resource struct {
	metav1.APIResource
	columns []metav1.TableColumnDefinition
	paths   []string // the fields of the columns but the first, which is the name
}

// newResource returns a resource without columns of its own.
func newResource(gv schema.GroupVersion, kind, plural string, namespaced bool, short ...string) resource {
	return resource{
		APIResource: metav1.APIResource{
			Name:         plural,
			SingularName: strings.ToLower(kind),
			ShortNames:   short,
			Namespaced:   namespaced,
			Group:        gv.Group,
			Version:      gv.Version,
			Kind:         kind,
			Verbs:        metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		},
		columns: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}},
	}
}

func (r resource) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

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

// parse parses a path: /api/v1 or /apis/GROUP/VERSION, optionally namespaces/NAMESPACE, and then resource,
// name and subresource.
func (s *Server) parse(path string) (target, bool) {
	part := strings.Split(strings.Trim(path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(part) > 2 && part[0] == "api":
		gv.Version, part = part[1], part[2:]
	case len(part) > 3 && part[0] == "apis":
		gv.Group, gv.Version, part = part[1], part[2], part[3:]
	default:
		return target{}, false
	}

	to := target{}
	if len(part) > 2 && part[0] == "namespaces" {
		to.namespace, part = part[1], part[2:]
	}

	part = append(part, "", "")
	to.name, to.subresource = part[1], part[2]
	if to.subresource != "" && to.subresource != "status" {
		return target{}, false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for _, r := range s.resources {
		if r.groupVersion() == gv && r.Name == part[0] {
			to.resource = r
			return to, true
		}
	}
	return target{}, false
}

// discovery returns the answer to a discovery request, or nil for all other paths.
func (s *Server) discovery(path string) any {
	s.mu.Lock()
	defer s.mu.Unlock()

	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	lists := map[string]*metav1.APIResourceList{}
	for _, r := range s.resources {
		gv := r.groupVersion().String()
		at := "/apis/" + gv
		if r.Group == "" {
			at = "/api/" + gv
		}

		if lists[at] == nil {
			lists[at] = &metav1.APIResourceList{
				TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: gv,
			}
			if r.Group != "" {
				addVersion(groups, r.Group, metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: r.Version})
			}
		}
		lists[at].APIResources = append(lists[at].APIResources, r.APIResource)
	}

	switch path {
	case "/version":
		return version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}
	case "/api":
		return &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
			Versions: []string{"v1"},
		}
	case "/apis":
		return groups
	}

	if list := lists[path]; list != nil {
		return list
	}
	return nil
}

// addVersion adds a version of a group. The first one is preferred.
func addVersion(groups *metav1.APIGroupList, name string, version metav1.GroupVersionForDiscovery) {
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == name })
	if i < 0 {
		i = len(groups.Groups)
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: name, PreferredVersion: version})
	}
	groups.Groups[i].Versions = append(groups.Groups[i].Versions, version)
}
