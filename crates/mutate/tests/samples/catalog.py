"""The catalogue of a shop: products with prices and stock."""
from __future__ import annotations

import os

import redis
import requests
from flask import Flask, jsonify, request

app = Flask(__name__)
cache = redis.Redis(host=os.environ.get("REDIS_HOST", "localhost"), decode_responses=True)
STOCK_URL = os.environ.get("STOCK_URL", "http://stock:8081")
PRICE_URL = os.environ.get("PRICE_URL", "http://price:8082")


@app.route("/products/<product_id>")
def show_product(product_id):
    """Shows one product."""
    cached = cache.get(f"product:{product_id}")
    if cached is not None:
        return jsonify(id=product_id, name=cached, cached=True)
    stock = requests.get(f"{STOCK_URL}/stock/{product_id}", timeout=2)
    price = requests.get(f"{PRICE_URL}/price/{product_id}", params={"stock": stock.json()["left"]}, timeout=2)
    cache.set(f"product:{product_id}", price.json()["name"], ex=60)
    product = {
        "id": product_id,
        "left": stock.json()["left"],
        "price": price.json()["price"],
        "available": True,
    }
    return jsonify(product)


@app.post("/products")
def add_product():
    body = request.get_json()
    if "name" not in body:
        return {"error": "name is missing"}, 400
    else:
        cache.set(f"product:{body['name']}", body["name"])
    return {"created": 1}, 201


def parse_price(text):
    if not text: return None
    whole, cents = text.split(".")
    return whole, cents


if __name__ == "__main__":
    app.run(port=8080)
