package fastserver

import (
	"errors"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// kind describes a resource.
type kind struct {
	schema.GroupVersionResource
	name       string
	namespaced bool
	// subresources that can be written: status, scale, resize.
	subresources []string
	// typed: a built-in kind, kept as its Go type, which can be encoded as protobuf.
	typed bool
}

func (k *kind) gvk() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.name) }

func (k *kind) has(subresource string) bool { return slices.Contains(k.subresources, subresource) }

// scheme has the built-in kinds that are served.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // it cannot fail for our own types
		}
	}
	return s
}()

// builtIn are the kinds that are served from the beginning: resource, kind, subresources; a dash before a
// resource means that it is cluster-scoped.
var builtIn = map[schema.GroupVersion][][]string{
	{Version: "v1"}: {{"-namespaces", "Namespace", "status"}, {"-nodes", "Node", "status"},
		{"-persistentvolumes", "PersistentVolume", "status"},
		{"pods", "Pod", "status", "resize"},
		{"persistentvolumeclaims", "PersistentVolumeClaim", "status"}, {"configmaps", "ConfigMap"}, {"secrets", "Secret"},
		{"services", "Service", "status"},
		{"serviceaccounts", "ServiceAccount"}, {"podtemplates", "PodTemplate"}, {"events", "Event"},
		{"replicationcontrollers", "ReplicationController", "status", "scale"}},
	{Group: "apps", Version: "v1"}: {{"controllerrevisions", "ControllerRevision"}, {"deployments", "Deployment", "status", "scale"},
		{"replicasets", "ReplicaSet", "status", "scale"},
		{"statefulsets", "StatefulSet", "status", "scale"}, {"daemonsets", "DaemonSet", "status"}},
	{Group: "batch", Version: "v1"}:                {{"jobs", "Job", "status"}, {"cronjobs", "CronJob", "status"}},
	{Group: "coordination.k8s.io", Version: "v1"}:  {{"leases", "Lease"}},
	{Group: "events.k8s.io", Version: "v1"}:        {{"events", "Event"}},
	{Group: "storage.k8s.io", Version: "v1"}:       {{"-storageclasses", "StorageClass"}},
	{Group: "scheduling.k8s.io", Version: "v1"}:    {{"-priorityclasses", "PriorityClass"}},
	{Group: "policy", Version: "v1"}:               {{"poddisruptionbudgets", "PodDisruptionBudget", "status"}},
	{Group: "apiextensions.k8s.io", Version: "v1"}: {{"-customresourcedefinitions", "CustomResourceDefinition", "status"}},
	{Group: "admissionregistration.k8s.io", Version: "v1"}: {{"-mutatingwebhookconfigurations", "MutatingWebhookConfiguration"},
		{"-validatingwebhookconfigurations", "ValidatingWebhookConfiguration"}},
}

func builtInKinds() []*kind {
	var all []*kind
	for gv, resources := range builtIn {
		for _, r := range resources {
			name, cluster := strings.CutPrefix(r[0], "-")
			all = append(all, &kind{GroupVersionResource: gv.WithResource(name), name: r[1], namespaced: !cluster, subresources: r[2:],
				typed: true})
		}
	}
	return all
}

// ofCRD returns the kind that a definition defines, in the stored version: nothing is converted here.
func ofCRD(crd *apiextensionsv1.CustomResourceDefinition) (*kind, error) {
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Storage {
			continue
		}
		k := &kind{GroupVersionResource: schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name,
			Resource: crd.Spec.Names.Plural},
			name: crd.Spec.Names.Kind, namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
		if v.Subresources != nil && v.Subresources.Status != nil {
			k.subresources = append(k.subresources, "status")
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			k.subresources = append(k.subresources, "scale")
		}
		return k, nil
	}
	return nil, errors.New("no version of " + crd.Name + " is stored")
}

var verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}

// discovery answers for /version, /api, /apis and the paths below them that are not objects; nil for other
// paths.
func (s *Server) discovery(path string) any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	versions := map[schema.GroupVersion][]metav1.APIResource{}
	groups := map[string]metav1.APIGroup{}
	for _, r := range s.resources {
		k, gv := r.kind, r.kind.GroupVersion()
		versions[gv] = append(versions[gv], metav1.APIResource{Name: k.Resource, SingularName: strings.ToLower(k.name), Kind: k.name,
			Namespaced: k.namespaced, Verbs: verbs})
		for _, sub := range k.subresources {
			entry := metav1.APIResource{Name: k.Resource + "/" + sub, Kind: k.name, Namespaced: k.namespaced,
				Verbs: metav1.Verbs{"get", "patch", "update"}}
			if sub == "scale" {
				entry.Group, entry.Version, entry.Kind = "autoscaling", "v1", "Scale"
			}
			versions[gv] = append(versions[gv], entry)
		}
		if gv.Group != "" {
			v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			group := groups[gv.Group]
			if !slices.Contains(group.Versions, v) {
				group.Versions = append(group.Versions, v)
			}
			group.TypeMeta, group.Name, group.PreferredVersion = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, gv.Group,
				group.Versions[0]
			groups[gv.Group] = group
		}
	}
	listOf := func(gv schema.GroupVersion) any {
		if resources, ok := versions[gv]; ok {
			return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
				APIResources: resources}
		}
		return nil
	}
	switch segments := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/version":
		return map[string]string{"major": "1", "minor": "36", "gitVersion": Version}
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}}
	case path == "/apis":
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, group := range groups {
			list.Groups = append(list.Groups, group)
		}
		return list
	case path == "/api/v1":
		return listOf(schema.GroupVersion{Version: "v1"})
	case segments[0] == "apis" && len(segments) == 2:
		if group, ok := groups[segments[1]]; ok {
			return group
		}
	case segments[0] == "apis" && len(segments) == 3:
		return listOf(schema.GroupVersion{Group: segments[1], Version: segments[2]})
	}
	return nil
}
