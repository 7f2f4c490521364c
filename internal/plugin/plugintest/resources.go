package plugintest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a resource that the server serves.
type resource struct{ metav1.APIResource }

func (r resource) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}
}

// key returns the key under which the server stores an object.
func (r resource) key(namespace, name string) string {
	return strings.Join([]string{r.Group, r.Name, namespace, name}, "/")
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
v1 ConfigMap configmaps cm
v1 Secret secrets -
v1 Service services svc
v1 ServiceAccount serviceaccounts sa
v1 Event events ev
v1 Node nodes no
v1 Namespace namespaces ns
v1 PersistentVolumeClaim persistentvolumeclaims pvc
v1 ReplicationController replicationcontrollers rc
apps/v1 Deployment deployments deploy
apps/v1 ReplicaSet replicasets rs
apps/v1 StatefulSet statefulsets sts
apps/v1 DaemonSet daemonsets ds
apps/v1 ControllerRevision controllerrevisions -
batch/v1 Job jobs -
batch/v1 CronJob cronjobs cj
rbac.authorization.k8s.io/v1 RoleBinding rolebindings -
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings -`

// resources returns the resources of Kubernetes, and those of the project in the given version, as
// docs/spec/fields lists them.
func resources(t *testing.T, version string) []resource {
	t.Helper()
	var all []resource
	add := func(groupVersion, kind, plural, short string, namespaced bool) {
		gv, err := schema.ParseGroupVersion(groupVersion)
		if err != nil {
			t.Fatal(err)
		}
		r := metav1.APIResource{
			Name:         plural,
			SingularName: strings.ToLower(kind),
			Namespaced:   namespaced,
			Group:        gv.Group,
			Version:      gv.Version,
			Kind:         kind,
			Verbs:        metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"},
		}

		if short != "" && short != "-" {
			r.ShortNames = strings.Split(short, ",")
		}
		all = append(all, resource{r})
	}

	for line := range strings.SplitSeq(native, "\n") {
		part := strings.Fields(line)
		add(part[0], part[1], part[2], part[3],
			part[1] != "Node" && part[1] != "Namespace" && part[1] != "ClusterRoleBinding")
	}

	files, err := filepath.Glob(filepath.Join(Root(t), "docs/spec/fields/*."+version+".txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no resources of version %s: %v", version, err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		part := strings.Fields(line)

		facts := map[string]string{}
		for _, fact := range part[2:] {
			name, value, _ := strings.Cut(fact, "=")
			facts[name] = value
		}

		add(part[1], facts["kind"], facts["plural"], facts["shortNames"], facts["scope"] == "Namespaced")
	}

	return all
}

// Serve adds a resource to those that the server serves, such as "rollouts.kruise.io/v1beta1 Rollout
// rollouts".
func (s *Server) Serve(t *testing.T, groupVersion, kind, plural string) {
	t.Helper()
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		t.Fatal(err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = append(s.resources, resource{metav1.APIResource{
		Name:         plural,
		SingularName: strings.ToLower(kind),
		Namespaced:   true,
		Group:        gv.Group,
		Version:      gv.Version,
		Kind:         kind,
		Verbs:        metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"},
	}})
}

// Root returns the root folder of the repository.
func Root(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	for ; folder != "/"; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
	}

	t.Fatal("the test does not run within the repository")
	return ""
}

// byKind returns the resource of a kind.
func (s *Server) byKind(kind schema.GroupVersionKind) (resource, bool) {
	for _, r := range s.resources {
		if r.GroupVersion().WithKind(r.Kind) == kind {
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

	s.mu.Lock()
	defer s.mu.Unlock()

	for _, r := range s.resources {
		if r.GroupVersion() == gv && r.Name == part[0] {
			to.resource = r
			return to, true
		}
	}
	return to, false
}

// discovery returns the answer to a discovery request, or nil for all other paths.
func (s *Server) discovery(path string) any {
	s.mu.Lock()
	defer s.mu.Unlock()

	groups, lists := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
	}, map[string]*metav1.APIResourceList{}
	for _, r := range s.resources {
		gv := r.GroupVersion().String()
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
				version := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: r.Version}
				groups.Groups = append(groups.Groups, metav1.APIGroup{
					Name:             r.Group,
					Versions:         []metav1.GroupVersionForDiscovery{version},
					PreferredVersion: version,
				})
			}
		}
		lists[at].APIResources = append(lists[at].APIResources, r.APIResource)
	}

	switch path {
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

// selected returns a function that reports whether the selectors of a request match an object.
func selected(r *http.Request) (func(*unstructured.Unstructured) bool, error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	return func(object *unstructured.Unstructured) bool {
		set := fields.Set{}
		for _, requirement := range byField.Requirements() {
			set[requirement.Field], _, _ = unstructured.NestedString(object.Object,
				strings.Split(requirement.Field, ".")...)
		}
		return byLabel.Matches(labels.Set(object.GetLabels())) && byField.Matches(set)
	}, nil
}
