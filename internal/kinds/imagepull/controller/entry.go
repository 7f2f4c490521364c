package controller

import (
	"context"
	"time"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// ImageListPullJob describes the kind.
var ImageListPullJob = framework.Kind{
	Group:     appsv1beta1.GroupVersion.Group,
	Name:      "ImageListPullJob",
	Plural:    "imagelistpulljobs",
	Gates:     framework.Gates{{features.KruiseDaemon}, {features.ImagePullJobGate}},
	Webhooks:  ImageListPullJobs,
	EntryName: "imagelistpulljob-v1beta1",
	Access:    framework.Edit,
	Finalizer: pub.UnrecordedRun,
}

// ImagePullJob describes the kind.
var ImagePullJob = framework.Kind{
	Group:      appsv1beta1.GroupVersion.Group,
	Name:       "ImagePullJob",
	Plural:     "imagepulljobs",
	Gates:      framework.Gates{{features.KruiseDaemon}, {features.ImagePullJobGate}},
	Webhooks:   ImagePullJobs,
	EntryName:  "imagepulljob-v1beta1",
	Controller: "imagepulljob",
	Workers:    3,
	Access:     framework.Edit,
	Finalizer:  pub.PullJobProtection,
}

// NodeImage describes the kind.
var NodeImage = framework.Kind{
	Group:    appsv1beta1.GroupVersion.Group,
	Name:     "NodeImage",
	Plural:   "nodeimages",
	Cluster:  true,
	Gates:    framework.Gates{{features.KruiseDaemon}},
	Webhooks: NodeImages,
	Conversion: framework.Between((*appsv1alpha1.NodeImage).ToV1beta1,
		appsv1alpha1.NodeImageFromV1beta1, nil),
	Controller: "nodeimage",
	Workers:    3,
	With:       []string{"ImagePullJob", "ImageListPullJob"},
	Setup:      setUp,
}

// setUp adds the controllers of NodeImages and of both kinds of jobs.
func setUp(ctx context.Context, e *framework.Environment) error {
	return Setup(ctx, e.Manager, Options{
		Options:       e.Controller("nodeimage"),
		JobWorkers:    *e.Workers["imagepulljob"],
		CreationDelay: e.Flags.NodeImageDelay,
		ExtraTTL:      time.Duration(e.Flags.NodeImageTTL) * time.Second,
		Namespace:     e.DaemonNamespace,
		Jobs:          e.Gates.Enabled(features.ImagePullJobGate),
	})
}
