package create

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/registry"
)

// Whatever a schedule of the project or a CronJob makes can be created from it at once.
func TestJobsOfSchedulesAreListed(t *testing.T) {
	schedules := []schema.GroupKind{workloadkind.CronJob}
	for i := range registry.Kinds {
		schedules = append(schedules, schema.GroupKind{Group: registry.Kinds[i].Group, Kind: registry.Kinds[i].Name})
	}
	for _, of := range schedules {
		schedule := workloadkind.Of(of)
		if !schedule.Schedule {
			continue
		}
		for _, child := range schedule.Children {
			if !slices.ContainsFunc(jobs, func(j job) bool { return j.GroupKind == child && j.templates[of] != nil }) {
				t.Errorf("%s cannot be created from %s", child, of)
			}
		}
	}
}
