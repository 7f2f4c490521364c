package uniteddeployment

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/subset"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// Name is the name of the kind.
const Name = "UnitedDeployment"

// Labels and annotations of children and their pods.
const (
	// SubsetName is the label with the subset of a child and of its pods.
	SubsetName = "apps.kruise.io/subset-name"
	// RevisionHash is the label with the revision of the UnitedDeployment that a child or a pod was made
	// from.
	RevisionHash = "apps.kruise.io/controller-revision-hash"
	// SubsetPatch is the annotation of a child with the patch that it was made with, as written by the user
	// (UD-068).
	SubsetPatch = "apps.kruise.io/subset-patch"
	// ReservedPod is "true" on a pod that has a substitute elsewhere, and "false" on a pod that counts
	// (UD-111).
	ReservedPod = "apps.kruise.io/united-deployment-reserved-pod"
)

// Kind is a kind of children, named by the field of the template that selects it (UD-002).
type Kind string

// Kinds of children.
const (
	StatefulSet         Kind = "statefulSetTemplate"
	AdvancedStatefulSet Kind = "advancedStatefulSetTemplate"
	CloneSet            Kind = "cloneSetTemplate"
	Deployment          Kind = "deploymentTemplate"
)

// Kinds lists all kinds of children.
var Kinds = []Kind{StatefulSet, AdvancedStatefulSet, CloneSet, Deployment}

// workloads maps the kinds to those of Kubernetes and of this project.
var workloads = map[Kind]workloadkind.Kind{
	StatefulSet:         workloadkind.Of(workloadkind.StatefulSet),
	AdvancedStatefulSet: workloadkind.Of(workloadkind.AdvancedStatefulSet),
	CloneSet:            workloadkind.Of(workloadkind.CloneSet),
	Deployment:          workloadkind.Of(workloadkind.Deployment),
}

// New returns an empty child.
func (k Kind) New() workloadkind.Object { return workloads[k].New() }

// GroupVersionKind returns the kind in the version in which children are read and written.
func (k Kind) GroupVersionKind() schema.GroupVersionKind { return workloads[k].GroupVersionKind() }

// APIVersion returns the API version in which children of the kind are read and written.
func (k Kind) APIVersion() string { return k.GroupVersionKind().GroupVersion().String() }

// Name returns the name of the kind in its API group.
func (k Kind) Name() string { return k.GroupVersionKind().Kind }

// String returns the name of the kind. It distinguishes the two kinds that are named StatefulSet.
func (k Kind) String() string {
	if k == AdvancedStatefulSet {
		return "Advanced StatefulSet"
	}
	return k.Name()
}

// partitioned reports whether children of the kind have a partition.
func (k Kind) partitioned() bool { return k != Deployment }

// strategy returns the field of the spec that defines how pods are updated.
func (k Kind) strategy() string {
	if k == Deployment {
		return "strategy"
	}
	return "updateStrategy"
}

// Template is the template of children as a document, which keeps fields that our types do not know (UD-069).
type Template struct {
	Kind Kind
	// Document has metadata and spec.
	Document map[string]any
}

// ErrTemplates means that the number of templates is not one (UD-023).
var ErrTemplates = errors.New(
	"exactly one of statefulSetTemplate, advancedStatefulSetTemplate, cloneSetTemplate and deploymentTemplate must be set")

// TemplateOf returns the template of a UnitedDeployment.
func TemplateOf(written *appsv1beta1.SubsetTemplate) (*Template, error) {
	if err := written.DecodeError(); err != nil {
		return nil, err
	}

	text, err := json.Marshal(written)
	if err != nil {
		return nil, fmt.Errorf("encoding the template: %w", err)
	}
	return ParseTemplate(text)
}

// ParseTemplate parses the text of spec.template, or of the template in a revision.
func ParseTemplate(text []byte) (*Template, error) {
	all, err := subset.Object(appsv1alpha1.ModernSubsetTemplate(text))
	if err != nil {
		return nil, err
	}

	var found *Template
	for _, kind := range Kinds {
		if all[string(kind)] == nil {
			continue
		}
		document, ok := all[string(kind)].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s is a %T, and must be an object", kind, all[string(kind)])
		}
		if found != nil {
			return nil, ErrTemplates
		}
		found = &Template{kind, document}
	}

	if found == nil {
		return nil, ErrTemplates
	}

	return found, nil
}

// Labels returns the labels of the workload template.
func (t *Template) Labels() map[string]string { return t.texts("labels") }

func (t *Template) texts(field string) map[string]string {
	metadata, _ := t.Document["metadata"].(map[string]any)
	written, _ := metadata[field].(map[string]any)
	texts := map[string]string{}
	for key, value := range written {
		if text, ok := value.(string); ok {
			texts[key] = text
		}
	}
	return texts
}

// Bind returns the pod template of a subset: a copy of podTemplate with the node selector and the tolerations
// of the subset, and finally its patch (UD-016, UD-070).
func Bind(podTemplate map[string]any, s *appsv1beta1.Subset) (map[string]any, error) {
	pod := runtime.DeepCopyJSON(podTemplate)
	spec, err := subset.Child(pod, "spec")
	if err != nil {
		return nil, err
	}
	if err := subset.Require(spec, &s.NodeSelectorTerm); err != nil {
		return nil, fmt.Errorf("nodeSelectorTerm of subset %q: %w", s.Name, err)
	}
	if err := subset.Append(spec, "tolerations", s.Tolerations); err != nil {
		return nil, err
	}
	if pod, err = subset.Patch(pod, s.Patch.Raw, corev1.PodTemplateSpec{}); err != nil {
		return nil, fmt.Errorf("applying the patch of subset %q: %w", s.Name, err)
	}

	return pod, nil
}

// Wanted is what a child should have besides its template.
type Wanted struct {
	Replicas, Partition int32
	// Revision is the value of the revision labels.
	Revision string
	// Patch is the patch of the subset, as written by the user.
	Patch string
	// MaxUnavailable is set if that of the template does not apply (UD-073).
	MaxUnavailable *intstr.IntOrString
}

// childLabels returns the labels of the child of a subset.
func (t *Template) childLabels(selector *metav1.LabelSelector, name, revision string) map[string]string {
	labels := t.texts("labels")
	if selector != nil {
		maps.Copy(labels, selector.MatchLabels)
	}
	labels[SubsetName], labels[RevisionHash] = name, revision
	return labels
}

// Build returns the document of the child of a subset (UD-068, UD-069).
func (t *Template) Build(
	united *appsv1beta1.UnitedDeployment, s *appsv1beta1.Subset, wanted Wanted,
) (map[string]any, error) {
	labels := t.childLabels(united.Spec.Selector, s.Name, wanted.Revision)
	annotations := t.texts("annotations")
	annotations[SubsetPatch] = wanted.Patch

	written, _ := t.Document["spec"].(map[string]any)
	spec := runtime.DeepCopyJSON(written)
	if spec == nil {
		spec = map[string]any{}
	}

	selector := &metav1.LabelSelector{}
	if united.Spec.Selector != nil {
		selector = united.Spec.Selector.DeepCopy()
	}
	selector = metav1.AddLabelToSelector(selector, SubsetName, s.Name)

	var err error
	if spec["selector"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(selector); err != nil {
		return nil, fmt.Errorf("encoding the selector: %w", err)
	}

	spec["replicas"] = int64(wanted.Replicas)
	if err := t.Kind.pace(spec, wanted); err != nil {
		return nil, err
	}

	pod, err := subset.Child(spec, "template")
	if err != nil {
		return nil, err
	}
	if pod, err = Bind(pod, s); err != nil {
		return nil, err
	}

	metadata, err := subset.Child(pod, "metadata")
	if err != nil {
		return nil, err
	}
	podLabels, err := subset.Child(metadata, "labels") // after the patch, which must not break the labels
	if err != nil {
		return nil, err
	}
	podLabels[SubsetName], podLabels[RevisionHash] = s.Name, wanted.Revision
	spec["template"] = pod
	return map[string]any{"apiVersion": t.Kind.APIVersion(), "kind": t.Kind.Name(), "spec": spec,
		"metadata": map[string]any{
			"namespace": united.Namespace, "name": NameOf(united.Name, united.UID, t.Kind, s.Name, 0),
			"labels":          document(labels),
			"annotations":     document(annotations),
			"ownerReferences": []any{ownerDocument(united)}}}, nil
}

// pace sets partition and maxUnavailable if the kind has them.
func (k Kind) pace(spec map[string]any, wanted Wanted) error {
	strategy, _ := spec[k.strategy()].(map[string]any)
	kind, _ := strategy["type"].(string)
	if k != CloneSet && kind != "" && kind != "RollingUpdate" ||
		!k.partitioned() && wanted.MaxUnavailable == nil {
		return nil
	}

	strategy, err := subset.Child(spec, k.strategy())
	if err != nil {
		return err
	}
	if k == StatefulSet {
		strategy["type"] = "RollingUpdate"
	}
	rolling, err := subset.Child(strategy, "rollingUpdate")
	if err != nil {
		return err
	}
	if k.partitioned() {
		rolling["partition"] = int64(wanted.Partition)
	}

	switch most := wanted.MaxUnavailable; {
	case most == nil:
	case most.Type == intstr.Int:
		rolling["maxUnavailable"] = int64(most.IntVal)
	default:
		rolling["maxUnavailable"] = most.StrVal
	}

	return nil
}

func document(texts map[string]string) map[string]any {
	values := make(map[string]any, len(texts))
	for key, value := range texts {
		values[key] = value
	}
	return values
}

// OwnerReference returns a reference that makes the UnitedDeployment the controller of an object.
func OwnerReference(united *appsv1beta1.UnitedDeployment) metav1.OwnerReference {
	return *metav1.NewControllerRef(united, appsv1beta1.GroupVersion.WithKind(Name))
}

func ownerDocument(united *appsv1beta1.UnitedDeployment) map[string]any {
	owner, err := runtime.DefaultUnstructuredConverter.ToUnstructured(new(OwnerReference(united)))
	if err != nil {
		return nil // a reference can always be converted
	}
	return owner
}

// The maximum lengths of the names of children. They are as long as names that the API server generates, and
// for StatefulSets short enough for the names of their revisions to be label values.
const maxName, maxStatefulName = 63, 52

// NameOf returns the name of the child of a subset. further selects another name if the first is taken
// (UD-064).
func NameOf(united string, uid types.UID, kind Kind, name string, further int) string {
	most := maxName
	if kind == StatefulSet || kind == AdvancedStatefulSet {
		most = maxStatefulName
	}
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s/%s/%s/%d", uid, kind, name, further)
	hash := rand.SafeEncodeString(fmt.Sprintf("%016x", sum.Sum64()))[:8]
	prefix := united + "-" + name + "-"
	if len(validation.IsDNS1123Subdomain(strings.ToLower(prefix)+"x")) > 0 ||
		strings.ToLower(prefix) != prefix {
		prefix = united + "-"
	}

	return prefix[:min(len(prefix), most-len(hash))] + hash
}
