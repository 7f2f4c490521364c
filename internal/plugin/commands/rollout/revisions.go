package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"
	"k8s.io/kubectl/pkg/util/deployment"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/pods"
	"github.com/afloat-project/afloat/internal/plugin/terminal"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// Revision is a revision of a workload's pod template.
type Revision struct {
	// Number is the number of the revision. The highest number belongs to the present template.
	Number int64
	// Stored is the ControllerRevision that holds the revision, or the ReplicaSet for a Deployment.
	Stored *unstructured.Unstructured
	// Template is the pod template.
	Template map[string]any
}

// Cause returns the reason for the revision, as the user recorded it.
func (r *Revision) Cause() string {
	return cmp.Or(terminal.Plain(r.Stored.GetAnnotations()[polymorphichelpers.ChangeCauseAnnotation]),
		"<none>")
}

// RevisionsOf reads the revisions of an object, sorted from the oldest to the newest.
func RevisionsOf(
	ctx context.Context, f cmdutil.Factory, object *unstructured.Unstructured,
) ([]*Revision, error) {
	read, holder := controllerRevision,
		schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}
	switch workload.Kind(object) {
	case workloadkind.Deployment:
		read, holder = replicaSet,
			schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	case workloadkind.StatefulSet, workloadkind.DaemonSet,
		workloadkind.CloneSet, workloadkind.AdvancedStatefulSet, workloadkind.AdvancedDaemonSet:
	case workloadkind.UnitedDeployment: // its revisions hold templates of workloads
		read = func(stored *unstructured.Unstructured) (*Revision, error) {
			return &Revision{Number: int64(number(stored, 0, "revision")), Stored: stored}, nil
		}
	default:
		return nil, fmt.Errorf("a %s has no revisions", object.GetKind())
	}

	client, err := f.DynamicClient()
	if err != nil {
		return nil, err
	}

	selector, err := pods.Selector(object)
	if err != nil {
		return nil, err
	}

	list, err := client.Resource(holder).Namespace(object.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("reading the revisions of %s: %w", object.GetName(), err)
	}

	var found []*Revision
	for i := range list.Items {
		if !metav1.IsControlledBy(&list.Items[i], object) {
			continue
		}

		revision, err := read(&list.Items[i])
		if err != nil {
			return nil, fmt.Errorf("reading revision %s: %w", list.Items[i].GetName(), err)
		}
		if revision != nil {
			found = append(found, revision)
		}
	}

	slices.SortFunc(found, func(a, b *Revision) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Stored.GetName(), b.Stored.GetName()))
	})

	return found, nil
}

// controllerRevision reads the revision in a ControllerRevision.
func controllerRevision(stored *unstructured.Unstructured) (*Revision, error) {
	template, ok, err := unstructured.NestedMap(stored.Object, "data", "spec", "template")
	if err != nil || !ok {
		return nil, fmt.Errorf("it holds no pod template")
	}

	delete(template, "$patch")

	return &Revision{
		Number:   int64(number(stored, 0, "revision")),
		Stored:   stored,
		Template: withoutNull(template).(map[string]any),
	}, nil
}

// replicaSet reads the revision in a ReplicaSet of a Deployment. It returns nil if the ReplicaSet has no
// number.
func replicaSet(stored *unstructured.Unstructured) (*Revision, error) {
	count, err := strconv.ParseInt(stored.GetAnnotations()[deployment.RevisionAnnotation], 10, 64)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the Deployment has not yet numbered it
	}

	template, ok, err := unstructured.NestedMap(stored.Object, "spec", "template")
	if err != nil || !ok {
		return nil, fmt.Errorf("it holds no pod template")
	}

	unstructured.RemoveNestedField(template, "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey)
	return &Revision{Number: count, Stored: stored, Template: template}, nil
}

// withoutNull removes the null values that older libraries wrote for empty fields, such as the time of
// creation.
func withoutNull(value any) any {
	switch v := value.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, member any) bool { return member == nil })
		for key := range v {
			v[key] = withoutNull(v[key])
		}
	case []any:
		for i := range v {
			v[i] = withoutNull(v[i])
		}
	}
	return value
}

// before returns the revision before the latest one.
//
// Right after a change the present template may have no revision yet. In that case the newest revision is the
// one before it. Once the controller has observed the present template, a revision of it is stored, even if
// the two do not compare equal, for example because the API server has learned new defaults since.
//
// A second undo in a row changes nothing, so that the bad image does not come back because somebody tried
// again.
func before(object *unstructured.Unstructured, revisions []*Revision) (*Revision, error) {
	now, _, err := unstructured.NestedMap(object.Object, "spec", "template")
	if err != nil {
		return nil, err
	}

	observed := int64(number(object, 0, "status", "observedGeneration"))
	stored := observed > 0 && observed >= object.GetGeneration() ||
		slices.ContainsFunc(revisions, func(r *Revision) bool { return sameTemplate(now, r.Template) })

	if stored {
		revisions = revisions[:max(len(revisions)-1, 0)]
	}

	if len(revisions) == 0 {
		return nil, fmt.Errorf("no last revision to roll back to")
	}
	return revisions[len(revisions)-1], nil
}

// find returns the revision with that number.
func find(revisions []*Revision, wanted int64) (*Revision, error) {
	var numbers []string
	for _, r := range revisions {
		if r.Number == wanted {
			return r, nil
		}
		numbers = append(numbers, strconv.FormatInt(r.Number, 10))
	}

	return nil, fmt.Errorf("unable to find the specified revision %d; there are %s",
		wanted, cmp.Or(strings.Join(numbers, ", "), "none"))
}
