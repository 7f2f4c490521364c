package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/memcluster"
	"github.com/afloat-project/afloat/internal/registry"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// Scheme knows the types of all objects that a stage can hold.
var Scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		appsv1alpha1.AddToScheme,
		appsv1beta1.AddToScheme,
		policyv1beta1.AddToScheme,
	} {
		if err := add(Scheme); err != nil {
			panic(err)
		}
	}
}

// Reader reads worlds from a cluster with the user's rights.
type Reader struct {
	client client.Client
	mapper meta.RESTMapper
	config *rest.Config
	// managerNamespace is the namespace in which the manager is installed.
	managerNamespace string
	now              func() time.Time
	// flags are the flags of the manager that plans are made for. They are nil for the running manager.
	flags []string
}

// NewReader returns a Reader for the cluster.
func NewReader(config *rest.Config, mapper meta.RESTMapper, managerNamespace string) (*Reader, error) {
	c, err := client.New(config, client.Options{Scheme: Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}

	return &Reader{
		client:           c,
		mapper:           mapper,
		config:           config,
		managerNamespace: managerNamespace,
		now:              time.Now,
	}, nil
}

// World is an object on a stage, with everything that its plans are made from.
type World struct {
	Stage  *rehearsal.Stage
	Kind   *framework.Kind
	Object client.Object
	Key    memcluster.Key
	// Notes tell the user what could not be read, and what is assumed instead.
	Notes []string

	environment *framework.Environment
	// more maps workloads to the number of pods that they will have beyond those that budgets know of.
	more map[types.UID]int32
	// warnings are the latest warning events about the object.
	warnings []string
}

// KindOf returns the project's kind with that group and name, or nil if no plans are made for it.
func KindOf(of schema.GroupKind) *framework.Kind {
	for i := range registry.Kinds {
		if kind := &registry.Kinds[i]; kind.Group == of.Group && kind.Name == of.Kind &&
			kind.Rehearse != nil {
			return kind
		}
	}
	return nil
}

// kindByName returns the project's kind with that name.
func kindByName(name string) *framework.Kind {
	return &registry.Kinds[slices.IndexFunc(registry.Kinds, func(k framework.Kind) bool {
		return k.Name == name
	})]
}

// Get reads an object of one of the project's kinds in the version that the API server serves, and returns it
// in the version that plans are made from.
func (r *Reader) Get(
	ctx context.Context, kind *framework.Kind, name types.NamespacedName,
) (client.Object, error) {
	mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Name})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}

	document := &unstructured.Unstructured{}
	document.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := r.client.Get(ctx, name, document); err != nil {
		return nil, err //nolint:wrapcheck // the API server names the object
	}

	return Typed(kind, document)
}

// Typed converts a document of one of the project's kinds to the version that plans are made from.
func Typed(kind *framework.Kind, document *unstructured.Unstructured) (client.Object, error) {
	wanted := kind.Stored()
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", kind.Name, document.GetName(), err)
	}

	if kind.Conversion == nil { // both versions have the same fields
	} else if raw, err = kind.Conversion.Convert(raw, document.GroupVersionKind(), wanted); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind.Name, document.GetName(), err)
	}

	object, err := Scheme.New(wanted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}

	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.Name, document.GetName(), err)
	}

	typed, ok := object.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a %s is no object", kind.Name)
	}

	return typed, nil
}

// Load puts an object on a stage, with everything that its plans are made from. becomes lists later versions
// of the object, whose plans may need more objects.
func (r *Reader) Load(
	ctx context.Context, kind *framework.Kind, object client.Object, becomes ...client.Object,
) (*World, error) {
	w := &World{Stage: rehearsal.New(r.now()), Kind: kind, Object: object, more: map[types.UID]int32{}}
	w.Key = w.Stage.KeyOf(kind.Name, object)

	var err error
	if w.environment, err = r.environment(ctx, w); err != nil {
		return nil, err
	}

	w.Stage.Add(kind.Name, object)

	if set, ok := object.(*appsv1beta1.SidecarSet); ok {
		versions := []*appsv1beta1.SidecarSet{set}
		for _, other := range becomes {
			if version, ok := other.(*appsv1beta1.SidecarSet); ok {
				versions = append(versions, version)
			}
		}
		err = r.sidecars(ctx, w, versions)
	} else {
		err = r.workload(ctx, w)
	}
	if err != nil {
		return nil, err
	}

	return w, nil
}

// workload reads what the plans of a workload need: pods, revisions, claims and budgets of its namespace, and
// the nodes.
func (r *Reader) workload(ctx context.Context, w *World) error {
	in := client.InNamespace(w.Object.GetNamespace())
	if err := r.all(ctx, w, "Pod", &corev1.PodList{}, in); err != nil {
		return err
	}
	if err := r.all(ctx, w, "ControllerRevision", &appsv1.ControllerRevisionList{}, in); err != nil {
		return err
	}

	if err := r.optional(w, "PersistentVolumeClaims", "claims of pods are taken to be there and to fit",
		r.all(ctx, w, "PersistentVolumeClaim", &corev1.PersistentVolumeClaimList{}, in)); err != nil {
		return err
	}

	if err := r.budgets(ctx, w, in); err != nil {
		return err
	}

	err := r.all(ctx, w, "Node", &corev1.NodeList{})
	switch w.Kind.Name {
	case "BroadcastJob":
		return err
	case "DaemonSet":
		core := r.core()
		if core == nil {
			return err
		}
		w.Stage.Complete = framework.CompleteTemplate(framework.NewTemplateValidator(core))
		return err // a plan needs to know which nodes exist
	}

	return r.optional(w, "nodes", "all nodes are taken to be alive", err)
}

// sidecars reads the pods of all namespaces that a SidecarSet may have been injected into, and its revisions.
func (r *Reader) sidecars(ctx context.Context, w *World, versions []*appsv1beta1.SidecarSet) error {
	set, byNamespace := versions[0], false
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		selector = labels.Everything() // the plan reports the invalid selector
	}

	for _, version := range versions {
		byNamespace = byNamespace || version.Spec.NamespaceSelector != nil
		if !equality.Semantic.DeepEqual(version.Spec.Selector, set.Spec.Selector) {
			selector = labels.Everything() // each version selects its own pods
		}
	}

	listed := func(object client.Object) bool {
		return slices.Contains(
			pub.InjectedSidecarSets(object.GetAnnotations()[pub.SidecarSetInjectedList]), set.Name)
	}

	if err := r.some(ctx, w, "Pod", &corev1.PodList{}, listed,
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return err
	}

	if byNamespace {
		var namespaces corev1.NamespaceList
		if err := r.each(ctx, &namespaces, func(object client.Object) error {
			metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name:   object.GetName(),
				UID:    object.GetUID(),
				Labels: object.GetLabels(),
			}}
			metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
			w.Stage.Add("Namespace", metadata)
			return nil
		}); err != nil {
			return err
		}
	}

	if err := r.budgets(ctx, w); err != nil {
		return err
	}

	return r.all(ctx, w, "ControllerRevision", &appsv1.ControllerRevisionList{},
		client.InNamespace(w.environment.Namespace), client.MatchingLabels{pub.SidecarSetName: set.Name})
}

// budgets reads the PodUnavailableBudgets, if the kind is served.
func (r *Reader) budgets(ctx context.Context, w *World, in ...client.ListOption) error {
	kind := kindByName("PodUnavailableBudget")
	mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Name})
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("PodUnavailableBudgets: %w", err)
	}

	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Name + "List"))

	err = r.each(ctx, list, func(object client.Object) error {
		document, ok := object.(*unstructured.Unstructured)
		if !ok {
			return nil
		}

		budget, err := Typed(kind, document)
		if err == nil {
			w.Stage.Add(kind.Name, budget)
		}
		return err
	}, in...)

	return r.optional(w, "PodUnavailableBudgets", "what they hold is not known", err)
}

// optional replaces a permission error with a note, for objects that a plan can be made without.
func (r *Reader) optional(w *World, what, instead string, err error) error {
	if apierrors.IsForbidden(err) {
		w.Notes = append(w.Notes, fmt.Sprintf("you may not list %s: %s", what, instead))
		return nil
	}
	return err
}

// all puts all objects of a list on the stage.
func (r *Reader) all(
	ctx context.Context, w *World, kind string, list client.ObjectList, options ...client.ListOption,
) error {
	return r.some(ctx, w, kind, list, func(client.Object) bool { return true }, options...)
}

// some puts those objects of a list on the stage that take accepts.
func (r *Reader) some(
	ctx context.Context, w *World, kind string, list client.ObjectList,
	take func(client.Object) bool, options ...client.ListOption,
) error {
	return r.each(ctx, list, func(object client.Object) error {
		if take(object) {
			w.Stage.Add(kind, object)
		}
		return nil
	}, options...)
}

// page is the number of objects in one page of a list.
const page = 500

// each lists objects page by page, and calls do for each of them.
func (r *Reader) each(
	ctx context.Context, list client.ObjectList, do func(client.Object) error, options ...client.ListOption,
) error {
	for {
		err := r.client.List(ctx, list,
			append(options, client.Limit(page), client.Continue(list.GetContinue()))...)
		if next := continuation(err); next != "" {
			list.SetContinue(next)
			continue
		}
		if err != nil {
			return err //nolint:wrapcheck // the API server names what was listed
		}

		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.DeepCopyObject().(client.Object)
			if !ok {
				return nil
			}
			return do(object)
		}); err != nil {
			return err
		}

		if list.GetContinue() == "" {
			return nil
		}
	}
}

// continuation returns the token that the API server offers in place of one that has expired, because reading
// took so long.
func continuation(err error) string {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// core returns a client for the core API, or nil if none can be created.
func (r *Reader) core() rest.Interface {
	config := rest.CopyConfig(r.config)
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()

	core, err := rest.RESTClientFor(config)
	if err != nil {
		return nil
	}
	return core
}

// Resolve returns the kind that a resource argument such as clone names.
func (r *Reader) Resolve(argument string) (schema.GroupKind, error) {
	full, short := schema.ParseResourceArg(strings.ToLower(argument))
	if full != nil { // RESOURCE.VERSION.GROUP, unless it is RESOURCE.GROUP with a dot in the group
		if kinds, err := r.mapper.KindsFor(*full); err == nil && len(kinds) > 0 {
			return kinds[0].GroupKind(), nil
		}
	}

	kinds, err := r.mapper.KindsFor(short.WithVersion(""))
	if err != nil {
		return schema.GroupKind{}, fmt.Errorf("%s: %w", argument, err)
	}
	return kinds[0].GroupKind(), nil
}
