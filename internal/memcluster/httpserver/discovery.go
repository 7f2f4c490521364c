package httpserver

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Resource is an entry of discovery: a resource or subresource of a group and version.
type Resource struct {
	In schema.GroupVersion
	metav1.APIResource
}

// NewResource returns the entry of a resource that can be read and written.
func NewResource(in schema.GroupVersion, kind, plural string, namespaced bool) Resource {
	return Resource{In: in, APIResource: metav1.APIResource{
		Name:         plural,
		SingularName: strings.ToLower(kind),
		Namespaced:   namespaced,
		Group:        in.Group,
		Version:      in.Version,
		Kind:         kind,
		Verbs:        metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
	}}
}

// Discovery returns the answer to a discovery request, or nil for all other paths. gitVersion is the version
// of the server. Of the versions of a group the first one is preferred.
func Discovery(path, gitVersion string, resources []Resource) any {
	path = strings.TrimSuffix(path, "/")
	switch path {
	case "/version":
		return &version.Info{Major: "1", Minor: "36", GitVersion: gitVersion}
	case "/api":
		return &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
			Versions: []string{"v1"},
		}
	}

	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for _, r := range resources {
		at := "/apis/" + r.In.String()
		if r.In.Group == "" {
			at = "/api/" + r.In.String()
		} else {
			addVersion(groups, r.In)
		}
		if at == path {
			list.GroupVersion = r.In.String()
			list.APIResources = append(list.APIResources, r.APIResource)
		}
	}

	switch group, ok := strings.CutPrefix(path, "/apis/"); {
	case path == "/apis":
		return groups
	case list.GroupVersion != "":
		return list
	case ok:
		for i := range groups.Groups {
			if groups.Groups[i].Name == group {
				return &groups.Groups[i]
			}
		}
	}
	return nil
}

// addVersion adds a version of a group, unless it is there.
func addVersion(groups *metav1.APIGroupList, gv schema.GroupVersion) {
	added := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
	if i < 0 {
		i = len(groups.Groups)
		groups.Groups = append(groups.Groups, metav1.APIGroup{
			TypeMeta:         metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
			Name:             gv.Group,
			PreferredVersion: added,
		})
	}
	if group := &groups.Groups[i]; !slices.Contains(group.Versions, added) {
		group.Versions = append(group.Versions, added)
	}
}
