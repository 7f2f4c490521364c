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

	"github.com/afloat-project/afloat/internal/memcluster/httpserver"
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

// discovery answers for /version, /api, /apis and the paths below them that are not objects; nil for other
// paths.
func (s *Server) discovery(path string) any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var entries []httpserver.Resource
	for _, r := range s.resources {
		k := r.kind
		entry := httpserver.NewResource(k.GroupVersion(), k.name, k.Resource, k.namespaced)
		entries = append(entries, entry)
		for _, sub := range k.subresources {
			part := entry
			part.Name, part.SingularName, part.Verbs = k.Resource+"/"+sub, "", metav1.Verbs{"get", "patch", "update"}
			if sub == "scale" {
				part.Group, part.Version, part.Kind = "autoscaling", "v1", "Scale"
			}
			entries = append(entries, part)
		}
	}
	return httpserver.Discovery(path, Version, entries)
}
