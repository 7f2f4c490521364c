package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/afloat-project/afloat/internal/platform/features"
)

func webhookServer(o *options) webhook.Server {
	return webhook.NewServer(webhook.Options{Port: o.webhookPort, CertDir: o.certDir})
}

func addWebhooks(context.Context, ctrl.Manager, *options, *features.Gates) error { return nil }
