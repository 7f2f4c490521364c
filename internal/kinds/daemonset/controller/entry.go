package controller

import (
	"context"
	"fmt"

	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
)

// DaemonSet describes the kind.
var DaemonSet = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "DaemonSet",
	Plural:     "daemonsets",
	Webhooks:   DaemonSets,
	Conversion: DaemonSetConversion(),
	Controller: "daemonset",
	Workers:    20,
	Workload:   true,
	Access:     framework.Edit,
	Setup:      setUp,
	Rehearse:   rehearse,
}

func setUp(ctx context.Context, e *framework.Environment) error {
	kube, err := typedcorev1.NewForConfigAndClient(e.Manager.GetConfig(), e.Manager.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client that completes templates: %w", err)
	}
	return Setup(ctx, e.Manager, Options{
		Features:         featuresOf(e),
		Options:          e.Controller("daemonset"),
		PullJobs:         e.PullJobs,
		CompleteTemplate: framework.CompleteTemplate(framework.NewTemplateValidator(kube.RESTClient())),
	})
}

// featuresOf returns the switches of gates and flags.
func featuresOf(e *framework.Environment) daemonset.Features {
	return daemonset.Features{
		PruneIneligible: e.Gates.Enabled(features.DaemonSetPruneIneligibleNodes),
		Binds:           !e.Flags.AssignByScheduler,
		InPlace:         e.InPlace,
		DeferredResize:  e.Flags.DeferredResize,
		PreDownload: e.Gates.Enabled(features.KruiseDaemon) &&
			e.Gates.Enabled(features.PreDownloadImageForDaemonSetUpdate),
	}
}

func rehearse(ctx context.Context, e *framework.Environment, s *rehearsal.Stage) (rehearsal.Player, error) {
	read, err := rehearsal.Reader(ctx, s)
	return rehearsal.Workload(New(&Kind{
		Kube: &Kube{Reader: read}, Features: featuresOf(e), Template: s.Complete,
	}, s)), err
}
