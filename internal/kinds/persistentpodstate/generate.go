package persistentpodstate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Asked is what is read for the PersistentPodState that annotations of a workload ask for.
type Asked struct {
	Workload *Workload
	// Object is the PersistentPodState of the workload's name; nil if there is none.
	Object *appsv1beta1.PersistentPodState
	// Others are those of other names that refer to the workload.
	Others []*appsv1beta1.PersistentPodState
	// Kept: the workload has pods that are older than itself, so that they are those of an earlier one
	// (PPS-078).
	Kept bool
	// Gone: the workload of another kind that the object was generated for does not exist any more.
	Gone bool
}

// Generation is what becomes of the PersistentPodState of a workload.
type Generation struct {
	// Create is to be created.
	Create *appsv1beta1.PersistentPodState
	// Update is what the object is to be, in owner, annotations and spec; nil if it is that. Empty: its
	// status is emptied before.
	Update *appsv1beta1.PersistentPodState
	Empty  bool
	Delete bool
	// Conflict is why none is kept for the workload (PPS-077, PPS-079), Invalid what its annotations cannot
	// ask for.
	Conflict, Invalid string
}

// annotations are those that ask for a PersistentPodState.
var annotations = []string{
	pub.AutoGeneratePersistentPodState, pub.RequiredPersistentTopology, pub.PreferredPersistentTopology,
	pub.PersistentPodAnnotations, pub.PersistentPodStateRetentionPolicy,
}

// SameAsked tells whether two workloads ask for the same (PPS-073).
func SameAsked(a, b map[string]string) bool {
	return !slices.ContainsFunc(annotations, func(key string) bool {
		before, had := a[key]
		after, has := b[key]
		return had != has || before != after
	})
}

// Asks tells whether a workload asks for one.
func Asks(annotated map[string]string) bool {
	return annotated[pub.AutoGeneratePersistentPodState] == "true"
}

// mark is the value of annotation GeneratedPersistentPodState.
func mark(of Reference) string { return of.String() + "/" + of.Name }

// Generate plans the PersistentPodState that annotations of a workload ask for (PPS-070 to PPS-079).
func Generate(a *Asked) (g Generation) {
	w, object := a.Workload, a.Object
	var owner *metav1.OwnerReference
	if object != nil {
		owner = metav1.GetControllerOf(object)
	}
	ours := owner != nil && owner.UID == w.UID
	switch {
	case w.Terminating || object != nil && object.DeletionTimestamp != nil:
		return g
	case !Asks(w.Annotations):
		g.Delete = ours && TargetOf(object) == w.Reference
		return g
	}
	required, preferred := list(w.Annotations[pub.RequiredPersistentTopology]), list(
		w.Annotations[pub.PreferredPersistentTopology],
	)
	if len(required)+len(preferred) == 0 {
		return g
	}
	wanted := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Name: w.Name}}
	wanted.Spec = specOf(w, required, preferred)
	policy := appsv1beta1.PersistentPodStateRetentionPolicyType(
		w.Annotations[pub.PersistentPodStateRetentionPolicy],
	)
	if wanted.Spec.PersistentPodStateRetentionPolicy = policy; policy == "" && object != nil {
		wanted.Spec.PersistentPodStateRetentionPolicy = object.Spec.PersistentPodStateRetentionPolicy
	}
	if faults := invalid(wanted); faults != "" {
		g.Invalid = faults
		return g
	}
	wanted.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: w.APIVersion, Kind: w.Kind, Name: w.Name, UID: w.UID, Controller: new(true)},
	}
	wanted.Annotations = map[string]string{pub.GeneratedPersistentPodState: mark(w.Reference)}
	switch {
	case object == nil && len(a.Others) > 0:
		g.Conflict = "PersistentPodState " + a.Others[0].Name +
			" is of this workload already: none is generated"
	case object == nil:
		g.Create = wanted
	case a.Gone: // it cannot be made to refer to this one, and the next one does
		g.Delete = true
	case !ours && !former(object, owner, w.Reference), TargetOf(object) != w.Reference:
		g.Conflict = "PersistentPodState " + object.Name +
			" was not generated for this workload: it stays as it is, and none is generated"
	default:
		g.Empty = !ours && !a.Kept && len(object.Status.PodStates) > 0
		g.Update = updated(object, wanted)
	}
	return g
}

// Bereft returns the workload that an object was generated for, if the object has no owner any more because
// that one was deleted without what belonged to it; false if it is not such an object.
func Bereft(object *appsv1beta1.PersistentPodState) (of Reference, is bool) {
	of = TargetOf(object)
	return of, metav1.GetControllerOf(object) == nil &&
		object.Annotations[pub.GeneratedPersistentPodState] == mark(of)
}

// former tells whether an object was generated for an earlier workload of the same kind and name: its owner
// is that one, or it has none any more because that one was deleted without what belonged to it.
func former(object *appsv1beta1.PersistentPodState, owner *metav1.OwnerReference, of Reference) bool {
	if owner == nil {
		return object.Annotations[pub.GeneratedPersistentPodState] == mark(of)
	}
	return Reference{
		GroupKind: schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(),
		Name:      owner.Name,
	} == of
}

// updated is the object as it is wanted; nil if it is that.
func updated(object, wanted *appsv1beta1.PersistentPodState) *appsv1beta1.PersistentPodState {
	changed := object.DeepCopy()
	controller := wanted.OwnerReferences[0]
	isController := func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }
	if at := slices.IndexFunc(changed.OwnerReferences, isController); at < 0 ||
		changed.OwnerReferences[at].UID != controller.UID {
		changed.OwnerReferences = slices.DeleteFunc(changed.OwnerReferences,
			func(o metav1.OwnerReference) bool {
				return isController(o) || o.Kind == controller.Kind && o.Name == controller.Name
			})
		changed.OwnerReferences = append(changed.OwnerReferences, controller)
	}
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	maps.Copy(changed.Annotations, wanted.Annotations)
	target := changed.Spec.TargetRef // its version does not matter
	changed.Spec = wanted.Spec
	changed.Spec.TargetRef = target
	if equality.Semantic.DeepEqual(object, changed) {
		return nil
	}
	return changed
}

func specOf(w *Workload, required, preferred []string) (spec appsv1beta1.PersistentPodStateSpec) {
	spec.TargetRef = appsv1beta1.PersistentPodStateTarget{
		APIVersion: w.APIVersion,
		Kind:       w.Kind,
		Name:       w.Name,
	}
	if len(required) > 0 {
		spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: required}
	}
	if len(preferred) > 0 {
		spec.PreferredPersistentTopology = []appsv1beta1.PreferredTopologyTerm{{Weight: mostWeight,
			Preference: appsv1beta1.NodeTopologyTerm{Keys: preferred}}}
	}
	for _, key := range list(w.Annotations[pub.PersistentPodAnnotations]) {
		spec.PersistentPodAnnotations = append(spec.PersistentPodAnnotations,
			appsv1beta1.PersistentPodAnnotation{Key: key})
	}
	return spec
}

// list are the items of a comma-separated list, without blanks around them.
func list(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// invalid says what of the annotations no PersistentPodState can have.
func invalid(wanted *appsv1beta1.PersistentPodState) string {
	errs := validateSpec(wanted)
	if len(errs) == 0 {
		return ""
	}
	return errs[0].Error()
}
