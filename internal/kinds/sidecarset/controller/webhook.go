package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/controller/choose"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// sidecarSetWebhooks admits SidecarSets of both versions.
type sidecarSetWebhooks struct {
	judge framework.TemplateValidator
	// namespace is where revisions and the white list are, and where templates are validated.
	namespace string
	// cached reads SidecarSets; live reads revisions and the white list.
	cached, live client.Reader
	// native means that the API server supports native sidecars, nativeInPlace that they may be updated in
	// place.
	native, nativeInPlace bool
	// announcer makes the API server send the first pods of a SidecarSet; it is nil if pods are not sent at
	// all.
	announcer framework.Announcer
	// allMetadata is the gate SidecarSetPatchPodMetadataDefaultsAllowed.
	allMetadata bool
}

// +kubebuilder:rbac:groups=apps.kruise.io,resources=sidecarsets,verbs=get;list;watch

// SidecarSets returns the webhooks of the kind.
func SidecarSets(e *framework.Environment) framework.Webhooks {
	w := &sidecarSetWebhooks{
		judge:         e.Validator,
		namespace:     e.Namespace,
		cached:        e.Cache,
		live:          e.APIReader,
		announcer:     e.Announcer,
		native:        e.Minor >= 28,
		nativeInPlace: e.Minor >= 29 && e.Gates.Enabled(features.SidecarSetInPlaceUpdateNativeSidecar),
		allMetadata:   e.Gates.Enabled(features.SidecarSetPatchPodMetadataDefaultsAllowed),
	}
	return framework.Webhooks{Mutate: w.mutate, Validate: w.validate, Announces: true}
}

// mutate adds defaults and the hashes.
func (w *sidecarSetWebhooks) mutate(_ context.Context, request admission.Request) admission.Response {
	set, err := readSidecarSet(request.Object.Raw, &request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	completed, err := set.complete()
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	operations, err := framework.PatchBetween(request.Object.Raw, completed)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	return admission.Patched("", operations...)
}

// validate validates SidecarSets.
func (w *sidecarSetWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	given, err := readSidecarSet(request.Object.Raw, &request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	set := given.hub()
	if set.DeletionTimestamp != nil {
		return admission.Allowed("")
	}

	var old *appsv1beta1.SidecarSet
	if request.Operation == admissionv1.Update {
		// If the stored object cannot be read, everything counts as new.
		if stored, err := readSidecarSet(request.OldObject.Raw, &request); err == nil {
			old = stored.hub()
		}
	}

	var list appsv1beta1.SidecarSetList
	if err := w.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return framework.Refuse(http.StatusInternalServerError, fmt.Sprintf("listing SidecarSets: %v", err))
	}

	others := make([]*appsv1beta1.SidecarSet, len(list.Items))
	for i := range list.Items {
		others[i] = &list.Items[i]
	}

	others, err = w.withBase(ctx, set, others)
	if err != nil {
		return framework.Refuse(http.StatusInternalServerError, err.Error())
	}

	verdict := sidecarset.Validate(set, old, sidecarset.Environment{
		NativeSidecars: w.native,
		NativeInPlace:  w.nativeInPlace,
		Others:         others,
		FindRevision: func(r *appsv1beta1.SidecarSetInjectRevision) error {
			return w.findRevision(ctx, set.Name, r)
		},
		WhiteList: func(set *appsv1beta1.SidecarSet) field.ErrorList {
			return w.whiteList(ctx, set)
		},
	})
	causes, warnings := framework.Causes(verdict.Errors), append(given.warnings(), verdict.Warnings...)
	more, doubts := w.judgePod(ctx, set, old)
	warnings = append(warnings, doubts...)
	if causes = append(causes, more...); len(causes) > 0 {
		return framework.Invalid(&request, causes).WithWarnings(warnings...)
	}

	response := admission.Allowed("").WithWarnings(warnings...)
	if old != nil && framework.SameSpec(&request) {
		return response
	}

	return framework.Announced(ctx, w.announcer, &request, choose.Asks(set), response)
}

// withBase adds the base of a canary if the cache does not show it yet: one command may create both.
func (w *sidecarSetWebhooks) withBase(
	ctx context.Context, set *appsv1beta1.SidecarSet, others []*appsv1beta1.SidecarSet,
) ([]*appsv1beta1.SidecarSet, error) {
	name := sidecarset.CanaryOf(set)
	if name == "" || name == set.Name ||
		slices.ContainsFunc(others, func(other *appsv1beta1.SidecarSet) bool { return other.Name == name }) {
		return others, nil
	}
	base := &appsv1beta1.SidecarSet{}
	if err := w.live.Get(ctx, types.NamespacedName{Name: name}, base); err != nil {
		if apierrors.IsNotFound(err) {
			return others, nil // validation reports the missing base
		}
		return nil, fmt.Errorf("reading the base SidecarSet %s: %w", name, err)
	}
	return append(others, base), nil
}

// judgePod has the API server validate new containers and volumes. Faults of the stored object are not
// rejected.
func (w *sidecarSetWebhooks) judgePod(
	ctx context.Context, set, old *appsv1beta1.SidecarSet,
) ([]metav1.StatusCause, []string) {
	if old != nil && samePod(&set.Spec, &old.Spec) {
		return nil, nil
	}
	return framework.IntroducedErrors("containers and volumes", set, old, old != nil,
		func(set *appsv1beta1.SidecarSet) ([]metav1.StatusCause, error) {
			return w.judgeOne(ctx, &set.Spec)
		})
}

func samePod(a, b *appsv1beta1.SidecarSetSpec) bool {
	return framework.SameJSON(a.Containers, b.Containers) && framework.SameJSON(a.InitContainers, b.InitContainers) &&
		framework.SameJSON(a.Volumes, b.Volumes)
}

func (w *sidecarSetWebhooks) judgeOne(
	ctx context.Context, spec *appsv1beta1.SidecarSetSpec,
) ([]metav1.StatusCause, error) {
	if len(spec.Containers)+len(spec.InitContainers) == 0 {
		return nil, nil // validation reports the error
	}

	template, placeholder, err := sidecarset.PodTemplate(spec)
	if err != nil {
		return nil, err
	}

	// Encode the template as one document, because volumes may be something other than a list.
	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encoding containers and volumes: %w", err)
	}
	if template, err = framework.DecodeDocument(text); err != nil {
		return nil, fmt.Errorf("reading containers and volumes: %w", err)
	}

	causes, err := w.judge.Judge(ctx, w.namespace, template, nil)
	if err != nil {
		return nil, err
	}

	var own []metav1.StatusCause
	for _, cause := range causes {
		rest, inPod := strings.CutPrefix(cause.Field, "spec.template.spec")
		if placeholder != "" && strings.HasPrefix(rest, ".containers[0]") {
			continue
		}
		if cause.Field = "spec" + rest; !inPod {
			cause.Field = "spec"
		}
		own = append(own, cause)
	}

	return own, nil
}

// findRevision looks for a revision of the SidecarSet.
func (w *sidecarSetWebhooks) findRevision(
	ctx context.Context, set string, wanted *appsv1beta1.SidecarSetInjectRevision,
) error {
	if name := wanted.RevisionName; name != nil && *name != "" {
		revision := &appsv1.ControllerRevision{}
		if err := w.live.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: *name},
			revision); apierrors.IsNotFound(err) {
			return err
		} else if err != nil {
			return fmt.Errorf("%w: %w", sidecarset.ErrUnknown, err)
		}
		if revision.Labels[pub.SidecarSetName] != set {
			return fmt.Errorf("ControllerRevision %s is not of this SidecarSet", *name)
		}
		return nil
	}

	var list appsv1.ControllerRevisionList
	of := client.MatchingLabels{pub.SidecarSetName: set, pub.SidecarSetCustomVersion: *wanted.CustomVersion}
	if err := w.live.List(ctx, &list, client.InNamespace(w.namespace), of, client.Limit(1)); err != nil {
		return fmt.Errorf("%w: %w", sidecarset.ErrUnknown, err)
	}

	if len(list.Items) == 0 {
		return fmt.Errorf("no ControllerRevision of this SidecarSet has customVersion %s",
			*wanted.CustomVersion)
	}

	return nil
}

// whiteList checks the annotations that are set on pods against the white list.
func (w *sidecarSetWebhooks) whiteList(ctx context.Context, set *appsv1beta1.SidecarSet) field.ErrorList {
	if len(set.Spec.PatchPodMetadata) == 0 {
		return nil
	}
	config := &corev1.ConfigMap{}
	if err := w.live.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: sidecarset.ConfigMapName},
		config); err != nil && !apierrors.IsNotFound(err) {
		return field.ErrorList{field.InternalError(field.NewPath("spec", "patchPodMetadata"),
			fmt.Errorf("reading ConfigMap %s: %w", sidecarset.ConfigMapName, err))}
	}
	text, found := config.Data[sidecarset.WhiteListKey]
	return sidecarset.CheckWhiteList(set, text, found, w.allMetadata)
}

// givenSidecarSet is a SidecarSet in the version in which it is written.
type givenSidecarSet struct {
	raw     []byte
	unknown bool
	alpha   *appsv1alpha1.SidecarSet
	beta    *appsv1beta1.SidecarSet
}

func readSidecarSet(raw []byte, request *admission.Request) (*givenSidecarSet, error) {
	document, err := framework.DecodeDocument(raw)
	if err != nil {
		return nil, err
	}

	given := &givenSidecarSet{raw: raw}
	if framework.WrittenVersion(document, request) == appsv1alpha1.GroupVersion.Version {
		given.alpha = &appsv1alpha1.SidecarSet{}
		given.unknown, err = framework.Decode(raw, given.alpha)
	} else {
		given.beta = &appsv1beta1.SidecarSet{}
		given.unknown, err = framework.Decode(raw, given.beta)
	}

	template := &given.hub().Spec.SidecarSetTemplate
	if n := len(template.Containers) + len(template.InitContainers); err == nil && n > mostSidecars {
		err = fmt.Errorf("spec has %d containers: at most %d are possible", n, mostSidecars)
	}

	return given, err
}

// mostSidecars is more than a pod can run. Each container is compared, validated and hashed, which takes many
// times the memory of its text.
const mostSidecars = 256

func (g *givenSidecarSet) hub() *appsv1beta1.SidecarSet {
	if g.alpha != nil {
		return g.alpha.ToV1beta1()
	}
	return g.beta
}

// warnings returns warnings about fields of v1alpha1 that are overridden by others.
func (g *givenSidecarSet) warnings() []string {
	if g.alpha == nil || g.alpha.DroppedNamespaceSelector() == nil {
		return nil
	}
	return []string{
		fmt.Sprintf("spec.namespaceSelector has no effect: spec.namespace %s wins over it",
			g.alpha.Spec.Namespace),
	}
}

// complete returns the document with defaults and hashes.
func (g *givenSidecarSet) complete() ([]byte, error) {
	spec := appsv1beta1.SidecarSetSpec{}
	var object any = g.alpha
	var meta metav1.Object = g.alpha
	if g.alpha != nil {
		spec.SidecarSetTemplate = g.alpha.Spec.SidecarSetTemplate
	} else {
		spec, object, meta = g.beta.Spec, g.beta, g.beta
	}

	sidecarset.SetDefaults(&spec)
	if len(spec.Containers) == 0 { // an empty list is stored as none, and the hash is that of what is stored
		spec.Containers = nil
	}
	hash, err := sidecarset.Hash(&spec)
	if err != nil {
		return nil, err
	}

	without, err := sidecarset.HashWithoutImage(&spec)
	if err != nil {
		return nil, err
	}

	annotations := meta.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[pub.SidecarSetHash], annotations[pub.SidecarSetHashWithoutImage] = hash, without
	meta.SetAnnotations(annotations)
	if g.alpha != nil {
		g.alpha.Spec.SidecarSetTemplate = spec.SidecarSetTemplate
	} else {
		g.beta.Spec = spec
	}

	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the SidecarSet: %w", err)
	}
	if !g.unknown {
		return text, nil
	}

	return framework.Carry(g.raw, text, reflect.TypeOf(object), nil)
}
