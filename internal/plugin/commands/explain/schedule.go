package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
)

// scheduleKind is the kind for which why shows the times of its runs.
var scheduleKind = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: advancedcronjob.Name}

// latestRuns bounds the number of runs that are shown.
const latestRuns = 5

// whySchedule explains an AdvancedCronJob with the manager's own plan: what holds the run that is due, when
// the next run begins, and how the latest runs ended.
func (r *Reader) whySchedule(ctx context.Context, name types.NamespacedName) (*Explanation, error) {
	object, err := r.Get(ctx, kindByName(advancedcronjob.Name), name)
	if err != nil {
		return nil, err
	}

	cronJob, ok := object.(*appsv1beta1.AdvancedCronJob)
	if !ok {
		return nil, fmt.Errorf("%s is no %s", name.Name, advancedcronjob.Name)
	}

	e := &Explanation{
		Kind:      advancedcronjob.Name,
		Namespace: name.Namespace,
		Name:      name.Name,
		Pods:      []Pod{},
		now:       r.now(),
		told:      true,
	}
	snapshot := advancedcronjob.Snapshot{CronJob: cronJob, Now: e.now, Zone: time.UTC}
	for kind, list := range map[advancedcronjob.Kind]client.ObjectList{
		advancedcronjob.Job:              &batchv1.JobList{},
		advancedcronjob.BroadcastJob:     &appsv1beta1.BroadcastJobList{},
		advancedcronjob.ImageListPullJob: &appsv1beta1.ImageListPullJobList{},
	} {
		created := slices.Contains(advancedcronjob.Templates(&cronJob.Spec.Template), kind)
		err := r.client.List(ctx, list, client.InNamespace(name.Namespace))
		switch {
		case meta.IsNoMatchError(err):
			snapshot.Absent = append(snapshot.Absent, kind)
			continue
		case err != nil && created:
			e.Notes = append(e.Notes,
				fmt.Sprintf("%ss could not be read, it is taken to have none: %v", kind, err))
			continue
		case err != nil:
			continue
		}

		if err := meta.EachListItem(list, func(item runtime.Object) error {
			if child, ok := item.(client.Object); ok && advancedcronjob.OwnerOf(child) == cronJob.UID {
				snapshot.Children = append(snapshot.Children, advancedcronjob.ChildOf(child))
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}

	plan := advancedcronjob.Make(snapshot)
	switch plan.Reason {
	case advancedcronjob.NoTemplate, advancedcronjob.NoSchedule, advancedcronjob.NoZone,
		advancedcronjob.NotServed:
		e.Problems = append(e.Problems, plan.Message)
	default:
		e.Summary = append(e.Summary, plan.Message)
	}

	if !plan.Next.IsZero() && plan.Reason != advancedcronjob.NotYet {
		e.Summary = append(e.Summary, "the next time of the schedule is "+plan.Next.Format(time.RFC3339))
	}

	for _, note := range plan.Notes {
		if note.Reason == advancedcronjob.MissSchedule || note.Reason == advancedcronjob.TooManyMissedTimes {
			e.Problems = append(e.Problems, note.Message)
		}
	}

	e.Summary = append(e.Summary, runs(snapshot.Children, e.now)...)
	e.Warnings = r.warnings(ctx, object, e.now)
	return e, nil
}

// runs describes the latest runs and how they went.
func runs(children []advancedcronjob.Child, now time.Time) []string {
	slices.SortFunc(children, func(a, b advancedcronjob.Child) int { return b.Nominal.Compare(a.Nominal) })
	var lines []string
	for _, child := range children[:min(len(children), latestRuns)] {
		line := fmt.Sprintf("%s, started by hand: %s", child, child.Phase)
		if !child.Nominal.IsZero() {
			line = fmt.Sprintf("%s, the run of %s: %s",
				child, child.Nominal.UTC().Format(time.RFC3339), child.Phase)
		}

		if child.Phase == advancedcronjob.Active && !child.Started.IsZero() {
			line += " for " + ago(now, child.Started)
		}
		if child.Why != "" {
			line += ": " + child.Why
		}
		lines = append(lines, line)
	}

	if more := len(children) - latestRuns; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d earlier runs", more))
	}
	return lines
}
